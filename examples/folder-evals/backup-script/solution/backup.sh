#!/bin/sh
# Copy all files of $1 to $2, with .bak behind their names.
set -eu
mkdir -p -- "$2"
to=$(cd -- "$2" && pwd)
cd -- "$1"
export to
find . -type f -exec sh -c '
  for file do
    mkdir -p -- "$to/$(dirname -- "$file")" && cp -- "$file" "$to/$file.bak" || exit 1
  done
' sh {} +
