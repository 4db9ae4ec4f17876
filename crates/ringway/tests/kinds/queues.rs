//! A virtual machine's port with several queues, driven by DPDK: the queue of each received frame.

use std::collections::BTreeMap;

use ringway_client::Port;
use ringway_scenes::testpmd::Testpmd;
use ringway_scenes::{Daemon, until};

const VM: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
const QUEUES: usize = 4;

/// Returns a frame to the machine. Its source address identifies the flow in testpmd's output.
fn frame(flow: u16, rest: &[u8]) -> Vec<u8> {
    let [high, low] = flow.to_be_bytes();
    let mut frame = [&VM[..], &[2, 1, 0, 0, high, low], rest].concat();
    frame.resize(frame.len().max(60), 0);
    frame
}

/// Returns an IPv4 packet from the address that ends in `host`. `fragment` is the offset in units of 8 bytes, and true
/// if more fragments follow.
fn ipv4(host: u8, protocol: u8, (offset, more): (u8, bool), payload: &[u8]) -> Vec<u8> {
    let len = 20 + payload.len() as u8;
    let header =
        [8, 0, 0x45, 0, 0, len, 0, 7, u8::from(more) << 5, offset, 64, protocol, 0, 0, 10, 0, 0, host, 10, 0, 0, 99];
    [&header[..], payload].concat()
}

fn ipv6(host: u8, next: u8, payload: &[u8]) -> Vec<u8> {
    let address = |host| [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host];
    let header = [0x86, 0xdd, 0x60, 0, 0, 0, 0, payload.len() as u8, next, 64];
    [&header[..], &address(host), &address(99), payload].concat()
}

fn ports(source: u16) -> Vec<u8> {
    let [high, low] = source.to_be_bytes();
    vec![high, low, 0, 53, 0, 26, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
}

/// Sends frames. Returns the queues by which each flow came, from testpmd's output.
fn queues(client: &mut Port, testpmd: &mut Testpmd, frames: &[Vec<u8>]) -> BTreeMap<u16, Vec<usize>> {
    let mut flows: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
    for some in frames.chunks(64) {
        some.iter().for_each(|frame| assert!(client.tx().push(frame)));
        client.flush();
        for _ in some {
            let line = testpmd.says("src=02:01:00:00:");
            let after = |mark: &str| line.split_once(mark).unwrap_or_else(|| panic!("no {mark:?} in {line:?}")).1;
            let flow = u16::from_str_radix(&after("src=02:01:00:00:")[..5].replace(':', ""), 16).unwrap();
            let queue: String = after("Receive queue=0x").chars().take_while(char::is_ascii_hexdigit).collect();
            flows.entry(flow).or_default().push(usize::from_str_radix(&queue, 16).unwrap());
        }
    }
    flows
}

/// Checks that each flow came whole, by one queue. Returns the number of flows of each queue.
fn spread(flows: &BTreeMap<u16, Vec<usize>>, frames: usize) -> [usize; QUEUES] {
    let mut spread = [0; QUEUES];
    for (flow, queues) in flows {
        assert_eq!((queues.len(), queues.iter().min()), (frames, queues.iter().max()), "flow {flow} by {queues:?}");
        spread[queues[0]] += 1;
    }
    spread
}

#[test]
fn flows_to_a_machine_with_several_queues_are_spread_by_addresses_protocol_and_ports_and_none_is_split() {
    for packed in [0, 1] {
        let daemon = Daemon::start("[switch.lan0]\n[port.vm]\nswitch = \"lan0\"\nkind = \"vhost-user\"\nqueues = 4\n");
        let socket = daemon.runtime_dir().join("vm.sock");
        let device = format!(
            "net_virtio_user0,mac=02:00:00:00:00:0a,path={},queues={QUEUES},packed_vq={packed}",
            socket.display()
        );
        let orders = daemon.runtime_dir().join("orders");
        std::fs::write(&orders, "set verbose 1\n").unwrap();
        let count = QUEUES.to_string();
        let mut arguments = vec!["--forward-mode=rxonly", "--total-num-mbufs=8192", "--rxq", &count, "--txq", &count];
        arguments.extend(["--cmdline-file", orders.to_str().unwrap()]);
        let mut testpmd = Testpmd::start(&[device], &arguments);
        testpmd.says("Press enter to exit");
        let client = &mut daemon.attach("lan0:c").unwrap();
        daemon.until_state("vm", "up");
        let probes: Vec<_> = (0..64).map(|flow| frame(flow, &ipv4(2, 17, (0, false), &ports(flow)))).collect();
        until("all queues are enabled", || {
            let flows = queues(client, &mut testpmd, &probes);
            (0..QUEUES).all(|queue| flows.values().any(|queues| queues.contains(&queue)))
        });
        assert_eq!(daemon.port("vm")["vhost_user"]["queues"], 2 * QUEUES);

        // Flows between two stations are steered by their UDP ports.
        for ip in [|rest: &[u8]| ipv4(1, 17, (0, false), rest), |rest: &[u8]| ipv6(1, 17, rest)] {
            let round = (0..64).map(|flow| frame(flow, &ip(&ports(1000 + flow))));
            let frames: Vec<_> = std::iter::repeat_n(round, 4).flatten().collect();
            let spread = spread(&queues(client, &mut testpmd, &frames), 4);
            assert!(spread.iter().sum::<usize>() == 64 && spread.iter().all(|flows| *flows >= 8), "{spread:?}");
        }
        // Only the first fragment has UDP ports, so fragments are steered by their addresses.
        for (ip, is_six) in [(64, false), (64, true)] {
            let pieces = (0..ip).flat_map(|flow| {
                let host = flow as u8 + 1;
                [(0, true), (3, true), (6, false)].map(|(offset, more)| {
                    let payload = if offset == 0 { ports(2000 + flow) } else { vec![flow as u8 ^ offset; 18] };
                    let rest = if is_six {
                        let header = [17, 0, 0, offset << 3 | u8::from(more), 0, 0, 0, host];
                        ipv6(host, 44, &[&header[..], &payload].concat())
                    } else {
                        ipv4(host, 17, (offset, more), &payload)
                    };
                    frame(flow, &rest)
                })
            });
            let spread = spread(&queues(client, &mut testpmd, &pieces.collect::<Vec<_>>()), 3);
            assert!(spread.iter().sum::<usize>() == 64 && spread.iter().all(|flows| *flows >= 8), "{spread:?}");
        }
        // TCP and UDP between equal ports are two flows. In most cases, they are on two queues.
        let frames = (0..64)
            .flat_map(|flow| [6, 17].map(|protocol| frame(flow, &ipv4(1, protocol, (0, false), &ports(3000 + flow)))));
        let flows = queues(client, &mut testpmd, &frames.collect::<Vec<_>>());
        let apart = flows.values().filter(|queues| queues[0] != queues[1]).count();
        assert!(apart >= 32, "{apart} of {}", flows.len());
        assert_eq!(daemon.port("vm")["drops"], serde_json::json!({}));
    }
}
