//! A build without the feature `programs`.

use std::fs;

use ringway_scenes::Daemon;

use super::scene::table;

/// Executes the command that `make plain` built. The shell gets the path of the usual one as its name.
const PLAIN: [&str; 3] = ["sh", "-c", r#"exec "${RINGWAY_PLAIN:?}" "$@""#];

#[test]
#[ignore = "needs a build of its own: make plain"]
fn a_build_without_programs_refuses_one_with_the_reason_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let module = dir.path().join("empty.wasm");
    fs::write(&module, b"\0asm\x01\0\0\0").unwrap();
    let daemon = Daemon::start_by(&PLAIN, "[switch.lan0]\n");
    let before = daemon.status()["switches"].clone();
    let said = daemon.ringway(&["switch", "set", "lan0", &format!("forwarding.program={}", module.to_str().unwrap())]);
    assert_ne!(said.code, Some(0));
    assert!(said.err.contains("this ringway was built without forwarding programs"), "{}", said.err);
    assert_eq!(daemon.status()["switches"], before);
    let _port = daemon.attach("lan0:a").unwrap();
    // The same in a configuration: a daemon would start, and drop all frames of the switch.
    let config = dir.path().join("ringway.toml");
    fs::write(&config, format!("[switch.lan0]\nforwarding = {}\n", table(&module, &[]))).unwrap();
    let [shell, more @ ..] = PLAIN;
    let mut command = std::process::Command::new(shell);
    command
        .args(more)
        .args(["ringway", "run", "--check", "--config"])
        .arg(&config)
        .arg("--runtime-dir")
        .arg(dir.path());
    let said: ringway_scenes::Said = command.output().unwrap().into();
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.err.contains("this ringway was built without forwarding programs"), "{}", said.err);
}
