//! Links of any kind, by their names.

use std::io::ErrorKind;
use std::path::Path;

use ringway_link::{AnyLink, AnyOptions, Link};
use ringway_scenes::Daemon;
use ringway_scenes::namespace::Namespace;

use crate::scene::{Scene, Station, cross};

#[test]
fn names_of_nothing_are_refused_with_what_would_be_right() {
    for spec in ["", "eth0", "dev:", "xdp:", ":port", "lan0:"] {
        let error = AnyLink::open(spec, Path::new("/nowhere"), &AnyOptions::default()).err().expect("it is refused");
        let (kind, said) = (error.kind(), error.to_string());
        assert_eq!(kind, ErrorKind::InvalidInput, "{said}");
        assert!(said.starts_with(&format!("\"{spec}\" names no link: write SWITCH:PORT")), "{said}");
    }
    for (spec, why) in [
        ("lan0:a/b", "port \"lan0:a/b\": port name \"lan0:a/b\": give SWITCH:PORT"),
        ("lan0:probe", "port \"lan0:probe\": no switch at /nowhere"),
        ("xdp:eth0/first", "\"xdp:eth0/first\": \"first\" is not a queue: write xdp:eth0/0"),
        ("xdp:no-such/1", "network device \"no-such\": cannot find it"),
        ("dev:no-such", "network device \"no-such\": cannot find it"),
    ] {
        let error = AnyLink::open(spec, Path::new("/nowhere"), &AnyOptions::default()).err().expect("it is refused");
        assert!(error.to_string().starts_with(why), "{error}");
    }
}

#[test]
fn frames_cross_between_two_links_of_each_kind() {
    let port =
        |name: &str, mac: &str| format!("[port.{name}]\nswitch = \"lan0\"\nkind = \"process\"\nmac = \"{mac}\"\n");
    let ports = [port("a", "02:00:00:00:00:01"), port("b", "02:00:00:00:00:02")].concat();
    let daemon = Daemon::start(&format!("[switch.lan0]\n{ports}"));
    let socket = daemon.runtime_dir().join("attach.sock");
    let scene = Scene::new();
    let open = |space: &Namespace, spec: &str| {
        Station::new(space.within(|| AnyLink::open(spec, &socket, &AnyOptions::default())).unwrap())
    };
    for [near, far] in [["lan0:a", "lan0:b"], ["dev:x0", "dev:w0"], ["xdp:x0", "xdp:w0/0"], ["xdp:x0", "dev:w0"]] {
        let (mut a, mut b) = (open(&scene.a, near), open(&scene.b, far));
        cross(&mut a, &mut b, 200);
        cross(&mut b, &mut a, 200);
        a.link.check().unwrap();
        assert_eq!((a.link.counts().dropped, b.link.counts().dropped), (0, 0));
    }
}
