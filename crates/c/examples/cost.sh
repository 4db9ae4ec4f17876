#!/bin/bash
# crates/c/examples/cost.sh [PROFILE [rates|messages]]    release, or tests
#
# Compares what the library costs a program in C and one in Rust, for frames of 60 bytes that it sends on one port in batches of 256 and
# receives on another:
# - the instructions for a frame, by callgrind, without the switch's own, which runs in another process. Needs valgrind.
# - "rates": the frames per second, the program on processor 0 and the switch on processor 1, which polls. All ways take turns, and a
#   ratio is that of two runs in one turn: what else the machine does changes from turn to turn. Needs two idle processors.
# - "messages": the instructions for an LWEP message of 8 and of 1400 bytes, at both ends, in batches of 64.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/../../.."
profile=${1:-release} table=${2:-instructions} frames=51200
turns=15 frames_of_a_turn=10240000
[[ $table == instructions || $table == rates || $table == messages ]] || {
    echo "usage: cost.sh [PROFILE [rates|messages]]" >&2
    exit 2
}
built=target/$profile
cargo build --quiet --profile "$profile" -p ringway
cargo build --quiet --profile "$profile" -p ringway-c --lib --example cost --example lwep_cost
work=$(mktemp -d)
packaging/c-library "$built/libringway_c.a" "$work"
ln -s libringway.so.0 "$work/libringway.so"
for program in cost lwep-cost; do
    cc -O2 -Wall -Wextra -o "$work/$program" crates/c/examples/$program.c -Icrates/c/include -L"$work" -lringway
done
printf '[switch.lan0]\n' >"$work/ringway.toml"
if [[ $table == rates ]]; then
    printf '[engine]\ncores = [1]\nidle = "spin"\n' >>"$work/ringway.toml"
fi
"$built/ringway" --runtime-dir "$work/run" run --config "$work/ringway.toml" >"$work/log" 2>&1 &
daemon=$!
trap 'kill $daemon; rm -rf "$work"' EXIT
until grep -q '^ready' "$work/log"; do
    kill -0 $daemon
    sleep 0.1
done

# count PROGRAM WAY...: instructions for a frame to send, to receive, and together.
count() {
    local functions counted=()
    for functions in 'work_send*' 'work_receive*'; do
        LD_LIBRARY_PATH=$work valgrind --tool=callgrind --callgrind-out-file="$work/counts" --toggle-collect="$functions" \
            "$1" "$work/run/attach.sock" $frames "${@:2}" >/dev/null 2>"$work/valgrind" || {
            cat "$work/valgrind" >&2
            exit 1
        }
        counted+=("$(sed -n 's/^totals: //p' "$work/counts")")
    done
    awk -v frames=$frames -v send="${counted[0]}" -v receive="${counted[1]}" \
        'BEGIN { printf "%8.1f %8.1f %8.1f\n", send / frames, receive / frames, (send + receive) / frames }'
}

# rate PROGRAM WAY: frames per second.
rate() {
    LD_LIBRARY_PATH=$work taskset -c 0 "$1" "$work/run/attach.sock" $frames_of_a_turn "$2" | sed 's/.* //'
}

# One line for each pair of ways.
pairs=("slots runs" "places slots" "copies copies")
rates() {
    local turn pair ways
    for ((turn = 0; turn < turns; turn++)); do
        for pair in "${!pairs[@]}"; do
            read -ra ways <<<"${pairs[pair]}"
            echo "$pair $(rate "$built/examples/cost" "${ways[0]}") $(rate "$work/cost" "${ways[1]}")"
        done
    done >"$work/rates"
    printf '%-40s %8s %8s %8s\n' "million frames per second, medians" Rust C C/Rust
    for pair in "${!pairs[@]}"; do
        read -ra ways <<<"${pairs[pair]}"
        printf '%-40s %8s %8s %8s\n' "Rust: ${ways[0]}, C: ${ways[1]}" \
            "$(median "$pair" '$2 / 1e6')" "$(median "$pair" '$3 / 1e6')" "$(median "$pair" '$3 / $2')"
    done
}

# median PAIR EXPRESSION: of the pair's turns.
median() {
    awk "\$1 == $1 { print $2 }" "$work/rates" | sort -g | awk '{ all[NR] = $1 } END { printf "%.2f", all[int((NR + 1) / 2)] }'
}

if [[ $table == rates ]]; then
    rates
    exit
fi

line() {
    printf '%-40s %s\n' "$1" "$(count "${@:2}")"
}

messages() {
    local size ways=("batch:send, drain" "single:send, poll" "place:reserve, commit, poll") way
    printf '%-40s %8s %8s %8s\n' "instructions for a message" send receive both
    for size in 8 1400; do
        for way in "${ways[@]}"; do
            line "$size bytes, Rust: ${way#*:}" "$built/examples/lwep_cost" $size "${way%%:*}"
            line "$size bytes, C: ${way#*:}" "$work/lwep-cost" $size "${way%%:*}"
        done
    done
}

if [[ $table == messages ]]; then
    messages
    exit
fi

printf '%-40s %8s %8s %8s\n' "instructions for a frame" send receive both
line "Rust: reserve, peek" "$built/examples/cost" slots
line "Rust: push_with, drain" "$built/examples/cost" places
line "C: ringway_reserve_run, _peek_run" "$work/cost" runs
line "C: ringway_reserve, ringway_peek" "$work/cost" slots
line "Rust: push, drain" "$built/examples/cost" copies
line "C: ringway_push_batch, ringway_drain" "$work/cost" copies
