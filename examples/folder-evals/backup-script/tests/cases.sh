# Makes the directory that is backed up: "$1".
mkdir -p "$1/plain" "$1/with space" "$1/-dash"
echo one > "$1/one.txt"
echo two > "$1/plain/two.txt"
echo three > "$1/with space/three four.txt"
echo five > "$1/-dash/-n"
echo six > "$1/star *.txt"
echo seven > "$1/quo'te\".txt"
ln -s one.txt "$1/link"
