#!/bin/sh
# Takes from an environment what no process of the image needs: tests of packages, sources of compiled modules, Arrow's
# Flight and S3 (obstore does that), twins of its libraries, and symbols of libraries, where `strip` is installed.
set -eu
packages=$(echo "$1"/lib/python3*/site-packages)
find "$packages" -depth -type d \( -name tests -o -name test -o -name __pycache__ \) -not -path "$packages/bcmdist/*" -exec rm -r {} +
find "$packages" -type f \( -name '*.py[xd]' -o -name '*.pxi' -o -name '*.[ach]' -o -name '*.cpp' \) -delete
arrow=$packages/pyarrow
rm -rf "$arrow"/include "$arrow"/*flight* "$arrow"/libarrow_s3* "$arrow"/_s3fs*
rm -f "$arrow"/libarrow*.so "$arrow"/libarrow*.so.*.*.* # of libarrow*.so.NUMBER
command -v strip >/dev/null || { apt-get update && apt-get install --yes --no-install-recommends binutils; } >/dev/null
# Not those in *.libs, whose segments were moved when their wheels were made: a stripped one cannot be loaded.
find "$packages" -type f -name '*.so*' -not -path '*.libs/*' -exec strip --strip-unneeded {} +
