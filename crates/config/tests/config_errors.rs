//! Every mistake a configuration can hold is reported at its place, with what would be right.

use ringway_config::{Host, parse};

fn host() -> Host {
    Host { cpus: vec![0, 1], runtime_dir: "/run/ringway".into() }
}

fn messages(text: &str) -> Vec<String> {
    match parse("r.toml", text, &host()) {
        Ok(_) => Vec::new(),
        Err(rejected) => rejected.to_string().lines().map(str::to_owned).collect(),
    }
}

/// Text and what is said about it, line by line.
const CASES: &[(&str, &[&str])] = &[
    // Not TOML.
    ("[engine]\nidle = adaptive\n", &["r.toml:2:8: string values must be quoted, expected literal string"]),
    ("[switch.a]\n[switch.a]\n", &["r.toml:2:9: duplicate key"]),
    // Sections.
    ("[engin]\n", &["r.toml:1:2: key \"engin\": unknown key; did you mean \"engine\"?"]),
    (
        "[colour]\n",
        &[
            "r.toml:1:2: key \"colour\": unknown key; the keys here are attach, bucket, engine, memory, port, privileged, sockets, state, switch",
        ],
    ),
    (
        "engine = 3\n",
        &["r.toml:1:10: key \"engine\": expected a table of keys, found 3; write [engine] and its keys below"],
    ),
    (
        "[switch]\nlan0 = true\n",
        &[
            "r.toml:2:8: key \"switch.lan0\": expected a table of keys, found true; write [switch.lan0] and its keys below",
        ],
    ),
    // [sockets]
    (
        "[sockets]\ngroup = \"no such\"\nmode = \"0999\"\n",
        &[
            "r.toml:2:9: key \"sockets.group\": there is no group \"no such\" in /etc/group; write one that is there, or a number",
            "r.toml:3:8: key \"sockets.mode\": \"0999\" is not the mode of a socket; write octal digits like \"0660\", at most \
             \"0777\"",
        ],
    ),
    (
        "[sockets]\nmode = 660\ncontrol = { owner = \"no such\" }\nattach = \"root\"\n",
        &[
            "r.toml:2:8: key \"sockets.mode\": expected permissions like \"0660\", found 660",
            "r.toml:3:21: key \"sockets.control.owner\": there is no user \"no such\" in /etc/passwd; write one that is there, or a \
             number",
            "r.toml:4:10: key \"sockets.attach\": expected a table like { group = \"kvm\", mode = \"0660\" }, found \"root\"",
        ],
    ),
    (
        "[switch.a]\n[port.b]\nswitch = \"a\"\nkind = \"e1000\"\naccess = { group = \"no such\", user = \"root\" }\n",
        &[
            "r.toml:5:20: key \"port.b.access.group\": there is no group \"no such\" in /etc/group; write one that is there, or a \
             number",
            "r.toml:5:31: key \"port.b.access.user\": unknown key; the keys here are group, mode, owner",
        ],
    ),
    (
        "[switch.a]\n[port.b]\nswitch = \"a\"\nkind = \"stream\"\nrole = \"client\"\naccess = { mode = \"0666\" }\n",
        &[
            "r.toml:6:1: key \"port.b.access\": the peer makes the socket of a client, and decides who may connect; leave it out, \
             or write role = \"server\"",
        ],
    ),
    (
        "[switch.a]\n[port.b]\nswitch = \"a\"\nkind = \"tap\"\naccess = { mode = \"0666\" }\n",
        &[
            "r.toml:5:1: key \"port.b.access\": a tap port has no access; leave it out, or write kind = \"vhost-user\", \"e1000\" \
             or \"stream\"",
        ],
    ),
    // [engine]
    ("[engine]\nidel = \"spin\"\n", &["r.toml:2:1: key \"engine.idel\": unknown key; did you mean \"idle\"?"]),
    (
        "[engine]\nidle = \"adaptve\"\n",
        &[
            "r.toml:2:8: key \"engine.idle\": unknown value \"adaptve\"; did you mean \"adaptive\"? (\"spin\", \"adaptive\" or \
            \"sleep\" can be used)",
        ],
    ),
    (
        "[engine]\nidle = \"lazy\"\n",
        &["r.toml:2:8: key \"engine.idle\": unknown value \"lazy\"; write \"spin\", \"adaptive\" or \"sleep\""],
    ),
    (
        "[engine]\nidle = 1\n",
        &["r.toml:2:8: key \"engine.idle\": expected \"spin\", \"adaptive\" or \"sleep\", found 1"],
    ),
    ("[engine]\ncores = [0, 7]\n", &["r.toml:2:13: key \"engine.cores\": there is no CPU 7; this machine has 0, 1"]),
    ("[engine]\ncores = [-1]\n", &["r.toml:2:10: key \"engine.cores\": there is no CPU -1; this machine has 0, 1"]),
    (
        "[engine]\ncores = [1, 1]\n",
        &["r.toml:2:13: key \"engine.cores\": CPU 1 is listed twice; give each poller its own CPU"],
    ),
    ("[engine]\ncores = 1\n", &["r.toml:2:9: key \"engine.cores\": expected a list of CPU numbers like [1], found 1"]),
    (
        "[engine]\ncores = [\"1\"]\n",
        &["r.toml:2:10: key \"engine.cores\": expected a list of CPU numbers like [1], found \"1\""],
    ),
    (
        "[engine]\nbatch = 0\n",
        &["r.toml:2:9: key \"engine.batch\": 0 is out of range; write a whole number from 1 to 1024"],
    ),
    (
        "[engine]\nbatch = 2.5\n",
        &["r.toml:2:9: key \"engine.batch\": expected a whole number from 1 to 1024, found a number that is not whole"],
    ),
    ("[engine]\nspin = 50\n", &["r.toml:2:8: key \"engine.spin\": expected a duration like \"300s\", found 50"]),
    (
        "[engine]\nspin = \"50\"\n",
        &[
            "r.toml:2:8: key \"engine.spin\": \"50\" is not a duration; write a number and one of ns, us, ms, s, min, h, like \
            \"300s\"",
        ],
    ),
    ("[engine]\nspin = \"2s\"\n", &["r.toml:2:8: key \"engine.spin\": 2s is out of range; write 0s to 1s"]),
    // [attach]
    (
        "[attach]\ncreate = \"all\"\n",
        &["r.toml:2:10: key \"attach.create\": unknown value \"all\"; write \"switches\", \"ports\" or \"none\""],
    ),
    (
        "[attach]\nmax_ports = 5000\n",
        &["r.toml:2:13: key \"attach.max_ports\": 5000 is out of range; write a whole number from 0 to 4096"],
    ),
    (
        "[attach]\nmax_memory = \"64M\"\n",
        &[
            "r.toml:2:14: key \"attach.max_memory\": \"64M\" is not a size; write a number and one of B, kB, MB, GB, KiB, MiB, \
            GiB, TiB, like \"64MiB\"",
        ],
    ),
    (
        "[attach]\nmax_memory = \"1KiB\"\n",
        &["r.toml:2:14: key \"attach.max_memory\": 1KiB is out of range; write 64KiB to 4GiB"],
    ),
    // [switch.NAME]
    (
        "[switch.\"a:b\"]\n",
        &["r.toml:1:9: key \"switch.a:b\": \"a:b\" is not a name: 1 to 32 letters, digits, \"_\", \".\" or \"-\""],
    ),
    (
        "[switch.lan0]\nforwarding = \"lerning\"\n",
        &[
            "r.toml:2:14: key \"switch.lan0.forwarding\": unknown value \"lerning\"; did you mean \"learning\"? (\"learning\" or \
            \"map\" can be used)",
        ],
    ),
    (
        "[switch.lan0]\nforwarding = { config = \"\", config_file = \"\", on_fault = \"drop\" }\n",
        &[
            "r.toml:2:1: key \"switch.lan0.forwarding.program\": missing; write the path of a module: program = \"acl.wasm\"",
            "r.toml:2:43: key \"switch.lan0.forwarding.config_file\": it is empty; write the path of a file",
        ],
    ),
    (
        "[switch.lan0]\nforwarding = { program = \"a\", config = \"\", config_file = \"b\" }\n",
        &["r.toml:2:44: key \"switch.lan0.forwarding.config_file\": config is given, too; write one of them"],
    ),
    (
        "[switch.lan0]\nmac_entries = 1000\n",
        &["r.toml:2:15: key \"switch.lan0.mac_entries\": 1000 is not a power of two; write 512 or 1024"],
    ),
    (
        "[switch.lan0]\nmac_entries = 64\nmac_limit = 65\n",
        &["r.toml:3:13: key \"switch.lan0.mac_limit\": 65 is out of range; write a whole number from 1 to 64"],
    ),
    (
        "[switch.lan0]\nmulticast = \"fllod\"\n",
        &[
            "r.toml:2:13: key \"switch.lan0.multicast\": unknown value \"fllod\"; write \"flood\", \"drop\" or \"port:NAME\"",
        ],
    ),
    (
        "[attach]\ncreate = \"none\"\n[switch.lan0]\nbroadcast = \"port:p\"\n",
        &[
            "r.toml:4:13: key \"switch.lan0.broadcast\": there is no port \"p\", and clients may not make one; write [port.p], or \
            name a port of \"lan0\"",
        ],
    ),
    (
        "[switch.a]\nunknown_unicast = \"port:p\"\n[switch.b]\n[port.p]\nswitch = \"b\"\nkind = \"process\"\n",
        &["r.toml:2:19: key \"switch.a.unknown_unicast\": port \"p\" is on switch \"b\"; name a port of \"a\""],
    ),
    (
        "[switch.a]\nforwarding = \"map\"\nunknown_unicast = \"flood\"\n",
        &[
            "r.toml:3:19: key \"switch.a.unknown_unicast\": \"flood\" cannot be in a map switch, whose map is the whole truth; \
            write \"drop\" or leave it out",
        ],
    ),
    // [port.NAME]
    (
        "[port.p]\n",
        &[
            "r.toml:1:7: key \"port.p.switch\": missing; name the switch this port is on: switch = \"NAME\"",
            "r.toml:1:7: key \"port.p.kind\": missing; write kind = \"process\", \"tap\", \"vhost-user\", \
            \"e1000\", \"stream\", \"xdp\" or \"packet\"",
        ],
    ),
    (
        "[switch.lan0]\n[port.p]\nswitch = \"lan1\"\nkind = \"process\"\n",
        &["r.toml:3:10: key \"port.p.switch\": there is no switch \"lan1\"; did you mean \"lan0\"?"],
    ),
    (
        "[port.p]\nswitch = \"lan1\"\nkind = \"process\"\n",
        &["r.toml:2:10: key \"port.p.switch\": there is no switch \"lan1\"; write [switch.lan1] to have one"],
    ),
    (
        "[port.p]\nswitch = \"lan0\"\nkind = \"vxlan\"\nsocket = \"vm1.sock\"\nrole = \"server\"\n",
        &["r.toml:3:8: key \"port.p.kind\": \"vxlan\" is not available in this version; write \"process\", \"tap\", \
            \"vhost-user\", \"e1000\", \"stream\", \"xdp\" or \"packet\""],
    ),
    (
        "[port.p]\nswitch = \"lan0\"\nkind = \"tun\"\n",
        &["r.toml:3:8: key \"port.p.kind\": unknown value \"tun\"; write \"process\", \"tap\", \"vhost-user\", \
            \"e1000\", \"stream\", \"xdp\" or \"packet\""],
    ),
    (
        "[port.p]\nswitch = \"lan0\"\nkind = \"vhost_user\"\n",
        &["r.toml:3:8: key \"port.p.kind\": unknown value \"vhost_user\"; did you mean \"vhost-user\"? (\"process\", \
            \"tap\", \"vhost-user\", \"e1000\", \"stream\", \"xdp\" or \"packet\" can be used)"],
    ),
    (
        "[port.p]\nswitch = \"lan0\"\nkind = \"tap\"\nsocket = \"x\"\n",
        &[
            "r.toml:4:1: key \"port.p.socket\": a tap port has no socket; leave it out, or write kind = \"vhost-user\", \
            \"e1000\" or \"stream\"",
        ],
    ),
    // Limits
    (
        "[port.p]\nswitch = \"lan0\"\nkind = \"process\"\ningress = \"1Gbit\"\n\
         egress = { rate = \"0bit\", burst = \"64B\", frames = \"2Gpps\", frames_burst = 0, on_excess = \"queue\" }\n\
         storm = { broadcast = \"0pps\", multicast = \"1Gbps\", unicast = \"1kpps\" }\n",
        &[
            "r.toml:4:11: key \"port.p.ingress\": expected a limit like { rate = \"1Gbit\" }, found \"1Gbit\"",
            "r.toml:5:19: key \"port.p.egress.rate\": 0bit is out of range; write 8kbit to 400Gbit",
            "r.toml:5:35: key \"port.p.egress.burst\": 64B is out of range; write 1514B to 1GiB",
            "r.toml:5:51: key \"port.p.egress.frames\": 2Gpps is out of range; write 1pps to 1Gpps",
            "r.toml:5:75: key \"port.p.egress.frames_burst\": 0 is out of range; write a whole number from 1 to 1000000000",
            "r.toml:5:90: key \"port.p.egress.on_excess\": unknown value \"queue\"; write \"drop\", \"wait\" or \"shape\"",
            "r.toml:6:23: key \"port.p.storm.broadcast\": \"0pps\" is out of range; write 1pps to 1Gpps, or 8kbit to 400Gbit",
            "r.toml:6:43: key \"port.p.storm.multicast\": \"1Gbps\" is not a rate; write 1pps to 1Gpps, or 8kbit to 400Gbit",
            "r.toml:6:52: key \"port.p.storm.unicast\": unknown key; the keys here are broadcast, burst, frames_burst, multicast, unknown_unicast",
        ],
    ),
    (
        "[port.p]\nswitch = \"lan0\"\nkind = \"process\"\ningress = { burst = \"64KiB\", frames_burst = 9, on_excess = \"wait\" }\n\
         egress = { ceiling = \"1Gbit\" }\n[port.q]\nswitch = \"lan0\"\nkind = \"process\"\n\
         egress = { rate = \"2Gbit\", ceiling = \"1Gbit\", bucket = \"t\" }\n[bucket.t]\nburst = \"1MiB\"\nframes_burst = 9\n",
        &[
            "r.toml:4:21: key \"port.p.ingress.burst\": there is no rate that it belongs to; write rate, or leave it out",
            "r.toml:4:45: key \"port.p.ingress.frames_burst\": there is no rate of frames that it belongs to; write frames, \
            or leave it out",
            "r.toml:4:60: key \"port.p.ingress.on_excess\": there is no limit; write rate, frames or bucket",
            "r.toml:5:22: key \"port.p.egress.ceiling\": there is no bucket to lend it; write rate, or name a bucket",
            "r.toml:9:38: key \"port.q.egress.ceiling\": it is less than the rate; write 2Gbit or more",
            "r.toml:10:9: key \"bucket.t.rate\": missing; write what its ports may have together: rate = \"1Gbit\"",
            "r.toml:12:16: key \"bucket.t.frames_burst\": there is no rate of frames that it belongs to; write frames, or \
            leave it out",
        ],
    ),
    (
        "[bucket.tenant]\nrate = \"1Gbit\"\n[port.p]\nswitch = \"lan0\"\nkind = \"process\"\n\
         ingress = { rate = \"600Mbit\", bucket = \"tenant\" }\n[port.q]\nswitch = \"lan0\"\nkind = \"process\"\n\
         ingress = { rate = \"600Mbit\", bucket = \"tenant\" }\negress = { bucket = \"tenan\" }\n[switch.lan0]\n",
        &[
            "r.toml:10:20: key \"port.q.ingress.rate\": the rates of the ports of bucket \"tenant\" add up to 1200Mbit, and it \
            has 1Gbit; write less, or ceiling instead of rate: it is lent and not guaranteed",
            "r.toml:11:21: key \"port.q.egress.bucket\": there is no bucket \"tenan\"; did you mean \"tenant\"?",
        ],
    ),
    // kind = "stream"
    (
        "[port.p]\nswitch = \"lan0\"\nkind = \"stream\"\nsocket = \"\"\nrole = \"clint\"\nqueues = 1\nmtu = 1500\n",
        &[
            "r.toml:4:10: key \"port.p.socket\": \"\" is not a socket's path; write one like \"vm1.sock\", without \"..\"",
            "r.toml:5:8: key \"port.p.role\": unknown value \"clint\"; did you mean \"client\"? (\"server\" or \"client\" \
            can be used)",
            "r.toml:6:1: key \"port.p.queues\": a stream port has no queues; leave it out, or write kind = \"vhost-user\" or \"xdp\"",
            "r.toml:7:1: key \"port.p.mtu\": a stream port has no mtu; leave it out, or write kind = \"tap\" or \"vhost-user\"",
        ],
    ),
    (
        "[switch.lan0]\n[port.a]\nswitch = \"lan0\"\nkind = \"vhost-user\"\n[port.b]\nswitch = \"lan0\"\nkind = \"stream\"\n\
         socket = \"a.sock\"\n",
        &[
            "r.toml:8:10: key \"port.b.socket\": the socket \"a.sock\" already belongs to port \"a\"; give each port its own",
        ],
    ),
    // kind = "e1000"
    (
        "[port.p]\nswitch = \"lan0\"\nkind = \"e1000\"\nrole = \"client\"\nqueues = 2\nmodel = \"e1000d\"\nlink = true\n\
         registers = \"direct\"\ncsb = \"yes\"\n",
        &[
            "r.toml:4:1: key \"port.p.role\": an e1000 port has no role; leave it out, or write kind = \"vhost-user\" or \
            \"stream\"",
            "r.toml:5:1: key \"port.p.queues\": an e1000 port has no queues; leave it out, or write kind = \"vhost-user\" or \"xdp\"",
            "r.toml:6:9: key \"port.p.model\": unknown value \"e1000d\"; did you mean \"e1000\"? (\"e1000\" or \"e1000e\" can \
            be used)",
            "r.toml:7:8: key \"port.p.link\": expected \"up\" or \"down\", found true",
            "r.toml:8:13: key \"port.p.registers\": unknown value \"direct\"; write \"mapped\" or \"trapped\"",
            "r.toml:9:7: key \"port.p.csb\": expected true or false, found \"yes\"",
        ],
    ),
    (
        "[port.p]\nswitch = \"lan0\"\nkind = \"e1000\"\nregisters = \"mapped\"\n",
        &[
            "r.toml:4:1: key \"port.p.registers\": an e1000's registers cannot be mapped: its first interrupt would undo \
            that; leave it out, or write model = \"e1000e\"",
        ],
    ),
    (
        "[port.p]\nswitch = \"lan0\"\nkind = \"vhost-user\"\nlink = \"down\"\n",
        &["r.toml:4:1: key \"port.p.link\": a vhost-user port has no link; leave it out, or write kind = \"e1000\""],
    ),
    // kind = "vhost-user"
    (
        "[port.p]\nswitch = \"lan0\"\nkind = \"vhost-user\"\nsocket = \"\"\nrole = \"sever\"\nqueues = 9\nmtu = 67\noffload = 1\n\
         device = \"p\"\n",
        &[
            "r.toml:4:10: key \"port.p.socket\": \"\" is not a socket's path; write one like \"vm1.sock\", without \"..\"",
            "r.toml:5:8: key \"port.p.role\": unknown value \"sever\"; did you mean \"server\"? (\"server\" or \"client\" \
            can be used)",
            "r.toml:6:10: key \"port.p.queues\": 9 is out of range; write a whole number from 1 to 8",
            "r.toml:7:7: key \"port.p.mtu\": 67 is out of range; write a whole number from 68 to 65513",
            "r.toml:8:11: key \"port.p.offload\": expected true or false, found 1",
            "r.toml:9:1: key \"port.p.device\": a vhost-user port has no device; leave it out, or write kind = \"tap\", \"xdp\" or \"packet\"",
        ],
    ),
    (
        "[port.p]\nswitch = \"lan0\"\nkind = \"vhost-user\"\nqueues = 0\nmtu = 65514\nsocket = 3\n",
        &[
            "r.toml:4:10: key \"port.p.queues\": 0 is out of range; write a whole number from 1 to 8",
            "r.toml:5:7: key \"port.p.mtu\": 65514 is out of range; write a whole number from 68 to 65513",
            "r.toml:6:10: key \"port.p.socket\": expected a socket's path, found 3",
        ],
    ),
    (
        "[port.p]\nswitch = \"lan0\"\nkind = \"vhost-user\"\nsocket = \"a/../b\"\n",
        &[
            "r.toml:4:10: key \"port.p.socket\": \"a/../b\" is not a socket's path; write one like \"vm1.sock\", without \
            \"..\"",
        ],
    ),
    (
        "[switch.lan0]\n[port.p]\nswitch = \"lan0\"\nkind = \"vhost-user\"\nsocket = \
         \"/123456789/123456789/123456789/123456789/123456789/123456789/123456789/123456789/123456789/123456789/1234567\"\n",
        &["r.toml:5:10: key \"port.p.socket\": \
            /123456789/123456789/123456789/123456789/123456789/123456789/123456789/123456789/123456789/123456789/1234567 \
            has 108 bytes, and a socket's path at most 107; write a shorter one, or choose a shorter --runtime-dir"],
    ),
    (
        "[switch.lan0]\n[port.p]\nswitch = \"lan0\"\nkind = \"vhost-user\"\nsocket = \"/run/ringway/./attach.sock\"\n",
        &["r.toml:5:10: key \"port.p.socket\": \"/run/ringway/attach.sock\" is the daemon's own; write another, like \
            \"vm1.sock\""],
    ),
    (
        "[switch.lan0]\n[port.control]\nswitch = \"lan0\"\nkind = \"vhost-user\"\n",
        &[
            "r.toml:2:7: key \"port.control.socket\": \"control.sock\" is the daemon's own; write another, like \"vm1.sock\"",
        ],
    ),
    (
        "[switch.lan0]\n[port.a]\nswitch = \"lan0\"\nkind = \"vhost-user\"\n[port.b]\nswitch = \"lan0\"\nkind = \"vhost-user\"\n\
         role = \"client\"\nsocket = \"/run//ringway/a.sock\"\n",
        &[
            "r.toml:9:10: key \"port.b.socket\": the socket \"/run/ringway/a.sock\" already belongs to port \"a\"; give each \
            port its own",
        ],
    ),
    // Mirrors.
    (
        "[switch.lan0]\n[port.m]\nswitch = \"lan0\"\nkind = \"process\"\nmirror = [\"m\"]\nmac = \"02:00:00:00:00:01\"\n",
        &[
            "r.toml:5:10: key \"port.m.mirror\": a port cannot mirror itself; name others",
            "r.toml:6:7: key \"port.m.mac\": a mirror has no addresses: frames are not for it; leave it out, or \"mirror\"",
        ],
    ),
    (
        "[switch.lan0]\n[port.m]\nswitch = \"lan0\"\nkind = \"process\"\nmirror = [\"p\"]\n\
         ingress = { rate = \"1Mbit\" }\negress = { frames = \"1kpps\" }\nstorm = { broadcast = \"1kpps\" }\n",
        &[
            "r.toml:6:1: key \"port.m.ingress\": a mirror has no limits: it may send nothing, and is given copies of what passed; \
             leave it out, and limit the ports that are mirrored",
            "r.toml:7:1: key \"port.m.egress\": a mirror has no limits: it may send nothing, and is given copies of what passed; \
             leave it out, and limit the ports that are mirrored",
            "r.toml:8:1: key \"port.m.storm\": a mirror has no limits: it may send nothing, and is given copies of what passed; \
             leave it out, and limit the ports that are mirrored",
        ],
    ),
    (
        "[switch.lan0]\n[port.m]\nswitch = \"lan0\"\nkind = \"process\"\nmirror = 1\nmirror_direction = \"up\"\n",
        &[
            "r.toml:5:10: key \"port.m.mirror\": expected a list of ports of the same switch like [\"vm1\"], found 1",
            "r.toml:6:20: key \"port.m.mirror_direction\": unknown value \"up\"; write \"both\", \"in\" or \"out\"",
        ],
    ),
    (
        "[attach]\ncreate = \"none\"\n[switch.a]\n[switch.b]\n[port.m]\nswitch = \"a\"\nkind = \"process\"\nmirror = [\"p\", \"q\"]\n\
         [port.p]\nswitch = \"b\"\nkind = \"process\"\n[port.n]\nswitch = \"a\"\nkind = \"process\"\nmirror = [\"m\"]\n",
        &[
            "r.toml:8:10: key \"port.m.mirror\": port \"p\" is on switch \"b\"; name ports of \"a\"",
            "r.toml:8:10: key \"port.m.mirror\": there is no port \"q\", and clients may not make one; write [port.q], or name a \
             port of \"a\"",
            "r.toml:15:10: key \"port.n.mirror\": port \"m\" is a mirror itself; name the ports that it mirrors",
        ],
    ),
    // Calls and pollers.
    (
        "[port.p]\nswitch = \"lan0\"\nkind = \"process\"\ncall_interval = \"2s\"\ncall_above = \"10\"\npoller = \"fast\"\n",
        &[
            "r.toml:4:17: key \"port.p.call_interval\": 2s is out of range; write 0s to 1s",
            "r.toml:5:14: key \"port.p.call_above\": \"10\" is not a rate of frames; write a number and one of pps, kpps, Mpps, \
            Gpps, like \"10kpps\"",
            "r.toml:6:10: key \"port.p.poller\": expected a poller's number or \"any\", found \"fast\"",
        ],
    ),
    (
        "[port.p]\nswitch = \"lan0\"\nkind = \"process\"\ncall_interval = 50\ncall_above = \"2Gpps\"\npoller = -1\n",
        &[
            "r.toml:4:17: key \"port.p.call_interval\": expected a duration like \"300s\", found 50",
            "r.toml:5:14: key \"port.p.call_above\": 2Gpps is out of range; write 0pps to 1Gpps",
            "r.toml:6:10: key \"port.p.poller\": expected a poller's number or \"any\", found -1",
        ],
    ),
    (
        "[switch.lan0]\n[port.p]\nswitch = \"lan0\"\nkind = \"process\"\npoller = 1\n",
        &["r.toml:5:10: key \"port.p.poller\": there is no poller 1; [engine] cores makes one, 0"],
    ),
    (
        "[engine]\ncores = [0, 1]\n[switch.lan0]\n[port.p]\nswitch = \"lan0\"\nkind = \"process\"\npoller = 2\n",
        &["r.toml:7:10: key \"port.p.poller\": there is no poller 2; [engine] cores makes 0 to 1"],
    ),
    (
        "[engine]\npacing = \"on\"\n",
        &["r.toml:2:10: key \"engine.pacing\": unknown value \"on\"; write \"adaptive\" or \"off\""],
    ),
    (
        "[port.p]\nswitch = \"lan0\"\nkind = \"process\"\nwieght = 2\n",
        &["r.toml:4:1: key \"port.p.wieght\": unknown key; did you mean \"weight\"?"],
    ),
    (
        "[port.p]\nswitch = \"lan0\"\nkind = \"process\"\nweight = 65\n",
        &["r.toml:4:10: key \"port.p.weight\": 65 is out of range; write a whole number from 1 to 64"],
    ),
    (
        "[port.p]\nswitch = \"lan0\"\nkind = \"process\"\nisolated = \"yes\"\n",
        &["r.toml:4:12: key \"port.p.isolated\": expected true or false, found \"yes\""],
    ),
    (
        "[port.p]\nswitch = \"lan0\"\nkind = \"process\"\nmac = [\"52:54:00:00:00:01\", \"52-54\"]\n",
        &["r.toml:4:29: key \"port.p.mac\": \"52-54\" is not an Ethernet address; write it like \"52:54:00:00:00:01\""],
    ),
    (
        "[port.p]\nswitch = \"lan0\"\nkind = \"process\"\nmac = \"01:00:5e:00:00:01\"\n",
        &[
            "r.toml:4:7: key \"port.p.mac\": 01:00:5e:00:00:01 is a group address; a port's address has an even first byte",
        ],
    ),
    (
        "[port.p]\nswitch = \"lan0\"\nkind = \"process\"\nmac = [\"52:54:00:00:00:01\", \"52:54:00:00:00:01\"]\n",
        &["r.toml:4:29: key \"port.p.mac\": 52:54:00:00:00:01 is listed twice; list it once"],
    ),
    (
        "[port.p]\nswitch = \"lan0\"\nkind = \"process\"\ndevice = \"tap0\"\n",
        &[
            "r.toml:4:1: key \"port.p.device\": a process port has no device; leave it out, or write kind = \"tap\", \"xdp\" or \"packet\"",
        ],
    ),
    (
        "[port.p]\nswitch = \"lan0\"\nkind = \"tap\"\ndevice = \"sixteen-letters-\"\n",
        &[
            "r.toml:4:10: key \"port.p.device\": \"sixteen-letters-\" is not a network device's name; write 1 to 15 printable \
            characters without \"/\", \":\", \"%\" and spaces",
        ],
    ),
    (
        "[port.sixteen-letters-]\nswitch = \"lan0\"\nkind = \"tap\"\n",
        &[
            "r.toml:1:7: key \"port.sixteen-letters-.device\": missing; the port's name does not do, as \"sixteen-letters-\" is \
            not a network device's name; write 1 to 15 printable characters without \"/\", \":\", \"%\" and spaces",
        ],
    ),
    (
        "[port.p]\nswitch = \"lan0\"\nkind = \"tap\"\nnetns = \"a/b\"\n",
        &[
            "r.toml:4:9: key \"port.p.netns\": \"a/b\" is not a network namespace; write a name of \"ip netns\" or an absolute \
            path",
        ],
    ),
    (
        "[switch.lan0]\n[port.a]\nswitch = \"lan0\"\nkind = \"tap\"\n[port.b]\nswitch = \"lan0\"\nkind = \"tap\"\ndevice = \"a\"\n",
        &[
            "r.toml:8:10: key \"port.b.device\": the device \"a\" already belongs to port \"a\"; give each port its own device",
        ],
    ),
    (
        "[switch.lan0]\nforwarding = \"map\"\n[port.a]\nswitch = \"lan0\"\nkind = \"process\"\nmac = \"52:54:00:00:00:01\"\n\
         [port.b]\nswitch = \"lan0\"\nkind = \"process\"\nmac = [\"52:54:00:00:00:01\"]\n",
        &[
            "r.toml:10:7: key \"port.b.mac\": 52:54:00:00:00:01 is already bound to port \"a\" of the map switch \"lan0\"; bind \
            each address to one port",
        ],
    ),
    // Who a port is, and whom it may reach.
    (
        "[port.p]\nswitch = \"lan0\"\nkind = \"process\"\nip = [\"10.0.0.5/24\", \"224.0.0.1\", \"10.0.0\"]\nguard = \"on\"\n",
        &[
            "r.toml:4:7: key \"port.p.ip\": \"10.0.0.5/24\" has bits beyond its length; write \"10.0.0.5\" or \"10.0.0.0/24\"",
            "r.toml:4:22: key \"port.p.ip\": 224.0.0.1 is for groups; a port's address is a single station's",
            "r.toml:4:35: key \"port.p.ip\": \"10.0.0\" is not an IP address; write it like \"10.0.0.5\", \"10.0.0.0/24\" or \
            \"fd00::5\"",
            "r.toml:5:9: key \"port.p.guard\": unknown value \"on\"; write \"auto\", \"all\", \"off\" or a list of \"mac\", \"ip\", \
            \"dhcp\", \"ra\"",
        ],
    ),
    (
        "[port.p]\nswitch = \"lan0\"\nkind = \"process\"\nguard = [\"mac\"]\nvlan = 10\ntrunk = [10, \"30-20\"]\n",
        &[
            "r.toml:4:9: key \"port.p.guard\": the port has no Ethernet addresses to guard; write mac = [\"ADDRESS\"]",
            "r.toml:6:14: key \"port.p.trunk\": \"30-20\" are not VLANs; write them like 10, \"20-29\" or \"all\"",
        ],
    ),
    (
        "[port.p]\nswitch = \"lan0\"\nkind = \"process\"\nvlan = 5000\nnative = 1\n",
        &[
            "r.toml:4:8: key \"port.p.vlan\": 5000 is not a VLAN; write 1 to 4094",
            "r.toml:5:1: key \"port.p.native\": only a trunk has a native VLAN; write trunk = [...], too, or vlan",
        ],
    ),
    (
        "[switch.lan0]\nlocal = \"deny\"\n",
        &["r.toml:2:9: key \"switch.lan0.local\": unknown value \"deny\"; write \"allow\" or \"drop\""],
    ),
    (
        "[attach]\ncreate = \"none\"\n[switch.lan0]\n[port.p]\nswitch = \"lan0\"\nkind = \"process\"\nallow = [\"q\"]\n\
         uplinks = [\"r\"]\n[port.r]\nswitch = \"lan0\"\nkind = \"process\"\n",
        &[
            "r.toml:7:9: key \"port.p.allow\": there is no port \"q\"; write [port.q]",
            "r.toml:8:11: key \"port.p.uplinks\": port \"r\" is no uplink; write uplink = true in [port.r]",
        ],
    ),
    // All at once, in the order of the text.
    (
        "[port.p]\nkind = \"process\"\nswitch = 3\nweight = 0\n[engine]\nbatch = -1\nx = 1\n",
        &[
            "r.toml:3:10: key \"port.p.switch\": expected a switch's name, found 3",
            "r.toml:4:10: key \"port.p.weight\": 0 is out of range; write a whole number from 1 to 64",
            "r.toml:6:9: key \"engine.batch\": -1 is out of range; write a whole number from 1 to 1024",
            "r.toml:7:1: key \"engine.x\": unknown key; the keys here are batch, cores, idle, pacing, spin",
        ],
    ),
];

#[test]
fn every_mistake_is_reported_at_its_place_with_what_would_be_right() {
    for (text, wanted) in CASES {
        assert_eq!(messages(text), *wanted, "for:\n{text}");
    }
}
