#!/bin/sh
# What does this pull request change, and for whom? For continuous integration; needs no cluster. Copy it into your repository.
#   ./pull-request.sh manifests origin/main [--cluster-issuer https://…]
# Ends with 1 if any subject gains, loses or changes a tool: let a person who answers for that look at the output.
# With 2 or more nothing was compared. A folder that only one side has is empty on the other.
set -eu
usage="usage: pull-request.sh FOLDER [BASE [OPTIONS of toolcrib access diff]]"
folder=${1:?$usage}
base=${2:-origin/main}
case $base in -*) echo "$usage (say the base before $base)" >&2; exit 2 ;; esac
if [ $# -gt 2 ]; then shift 2; else shift $#; fi

if ! git rev-parse --verify --quiet "$base^{commit}" >/dev/null; then
    echo "pull-request.sh: there is no commit $base here; fetch it first (actions/checkout: fetch-depth: 0)" >&2
    exit 2
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
before=$work/before/$folder after=$folder
mkdir -p "$work/before" "$work/none"
held=$(git ls-tree "$base" -- "$folder") || exit 2
if [ -n "$held" ]; then
    git archive -o "$work/before.tar" "$base" "$folder" || exit 2
    tar -xf "$work/before.tar" -C "$work/before" || exit 2
else
    before=$work/none
fi
if [ ! -e "$folder" ]; then
    [ -n "$held" ] || { echo "pull-request.sh: there is no $folder, neither here nor in $base" >&2; exit 2; }
    after=$work/none
fi

toolcrib access diff --manifests "$before" -f "$after" --prune --exit-code "$@"
