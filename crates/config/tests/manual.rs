//! The manual page of the configuration is that of the keys that there are.

use std::fs;
use std::path::Path;

use ringway_config::manual::{EXAMPLE, manual};
use ringway_config::port::port_keys;
use ringway_config::{Host, parse};

/// What brings the page up to date.
const UPDATE: &str = "UPDATE_MANUAL=1 cargo test -p ringway-config --test manual";

#[test]
fn the_manual_page_of_the_configuration_names_the_keys_that_there_are() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/man/ringway.toml.5");
    if std::env::var_os("UPDATE_MANUAL").is_some() {
        fs::write(&file, manual()).unwrap();
    }
    let page = fs::read_to_string(&file).unwrap_or_default();
    assert!(page == manual(), "{} is not that of the keys in the source; run: {UPDATE}", file.display());
    for known in port_keys() {
        assert!(page.contains(&format!("\n.B {}\n", known.key.name)), "{}", known.key.name);
    }
}

#[test]
fn the_example_of_the_manual_page_is_a_configuration() {
    let host = Host { cpus: vec![0], runtime_dir: "/run/ringway".into() };
    let config = parse("example", EXAMPLE, &host).unwrap();
    assert_eq!((config.ports.len(), config.switches.len(), config.buckets.len()), (2, 1, 1));
}
