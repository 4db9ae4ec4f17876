//! `ringway gen --e1000`: the driver of e1000s behind vfio-user.

mod support;

use support::{Said, ringway};

fn gen_says(args: &[&str]) -> Said {
    ringway().arg("gen").args(args).output().unwrap().into()
}

#[test]
fn mistakes_are_told_with_what_would_be_right() {
    let dir = tempfile::tempdir().unwrap();
    let nobody = dir.path().join("nobody.sock");
    let nobody = nobody.to_str().unwrap();
    for (args, code, wanted) in [
        (&["tx", "--e1000", nobody][..], 1, "no vfio-user server at "),
        (&["rx", "--e1000", nobody, "--ring", "100"], 2, "a power of two from 8 to 32768 is needed"),
        (&["rx", "--e1000", nobody, "--buffer-size", "2304"], 2, "a power of two from 256 to 16384 is needed"),
        (&["rx", "--e1000", nobody, "--e1000-interval", "17ms"], 2, "at most 16.7 ms fit into the register"),
        (
            &["tx", "--e1000", nobody, "--size", "4000"],
            2,
            "a frame of 4000 bytes, a buffer of 2048: raise --buffer-size",
        ),
        (&["tx", "lan0:a", "--e1000-mode", "csb"], 2, "--e1000 <SOCKET>"),
        (&["tx", "--e1000", nobody, "--e1000-mode", "fast"], 2, "base, moderated, combining, csb, mapped"),
        (&["tx", "lan0:a", "--e1000", nobody], 2, "give one SWITCH:PORT, or one --vhost-user or --e1000 SOCKET"),
        (&["loop", "--e1000", nobody], 2, "give two ports"),
    ] {
        let said = gen_says(args);
        assert_eq!(said.code, Some(code), "{args:?}: {}", said.err);
        assert!(said.err.contains(wanted), "{args:?}: {}", said.err);
        assert_eq!(said.out, "", "{args:?}");
    }
}
