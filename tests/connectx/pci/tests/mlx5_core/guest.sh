#!/usr/bin/env bash
# What runs in the guest: carries out scripts as the test puts them into $LAB_OUT, 1, 2 and so on, until one is empty. What a
# script says goes into files beside it, and its exit status last.
set -u
exec 3<> <(:)
for ((number = 1; ; number++)); do
    script=$LAB_OUT/$number
    # A pause without a process.
    until [ -e "$script" ]; do read -rt 0.05 <&3; done
    [ -s "$script" ] || exit 0
    bash "$script" >"$script.out" 2>"$script.err" </dev/null
    echo $? >"$script.part"
    mv "$script.part" "$script.status"
done
