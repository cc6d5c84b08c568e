#!/bin/sh
# What does this pull request change, and for whom? For continuous integration; needs no cluster.
#   examples/access/pull-request.sh manifests origin/main
# Ends with 1 if any subject gains, loses or changes a tool: let a person who answers for that look at the output.
set -eu
folder=${1:?usage: pull-request.sh FOLDER [BASE]}
base=${2:-origin/main}

before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT
git archive "$base" "$folder" | tar -x -C "$before"

toolcrib access diff --manifests "$before/$folder" -f "$folder" --prune --exit-code
