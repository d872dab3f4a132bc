#!/bin/sh
# Copy all files of $1 to $2, with .bak behind their names.
for file in $(find $1 -type f); do
  cp $file $2/$(basename $file).bak
done
