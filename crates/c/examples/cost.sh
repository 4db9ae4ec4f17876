#!/bin/bash
# crates/c/examples/cost.sh [PROFILE]    release, or tests
#
# Counts the instructions that a program in C and one in Rust execute for a frame of 60 bytes in batches of 256, by callgrind: sent on
# one port and received on another, without the switch's own, which runs in another process. Needs valgrind.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/../../.."
profile=${1:-release} frames=51200
built=target/$profile
cargo build --quiet --profile "$profile" -p ringway
cargo build --quiet --profile "$profile" -p ringway-c --lib --example cost
work=$(mktemp -d)
packaging/c-library "$built/libringway_c.a" "$work"
ln -s libringway.so.0 "$work/libringway.so"
cc -O2 -Wall -Wextra -o "$work/cost" crates/c/examples/cost.c -Icrates/c/include -L"$work" -lringway
printf '[switch.lan0]\n' >"$work/ringway.toml"
"$built/ringway" --runtime-dir "$work/run" run --config "$work/ringway.toml" >"$work/log" 2>&1 &
daemon=$!
trap 'kill $daemon; rm -rf "$work"' EXIT
until grep -q '^ready' "$work/log"; do
    kill -0 $daemon
    sleep 0.1
done

# count PROGRAM WAY: instructions for a frame to send, to receive, and together.
count() {
    local functions counted=()
    for functions in 'work_send*' 'work_receive*'; do
        LD_LIBRARY_PATH=$work valgrind --tool=callgrind --callgrind-out-file="$work/counts" --toggle-collect="$functions" \
            "$1" "$work/run/attach.sock" $frames "$2" >/dev/null 2>"$work/valgrind" || {
            cat "$work/valgrind" >&2
            exit 1
        }
        counted+=("$(sed -n 's/^totals: //p' "$work/counts")")
    done
    awk -v frames=$frames -v send="${counted[0]}" -v receive="${counted[1]}" \
        'BEGIN { printf "%8.1f %8.1f %8.1f\n", send / frames, receive / frames, (send + receive) / frames }'
}

printf '%-40s %8s %8s %8s\n' "instructions for a frame" send receive both
line() {
    printf '%-40s %s\n' "$1" "$(count "$2" "$3")"
}
line "Rust: reserve, peek" "$built/examples/cost" slots
line "Rust: push_with, drain" "$built/examples/cost" places
line "C: ringway_reserve_run, _peek_run" "$work/cost" runs
line "C: ringway_reserve, ringway_peek" "$work/cost" slots
line "Rust: push, drain" "$built/examples/cost" copies
line "C: ringway_push_batch, ringway_drain" "$work/cost" copies
