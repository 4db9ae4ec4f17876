//! `ringway bench` as a user sees it. The tests assert no time and no rate, only the presence of all documented output.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use ringway_scenes::until_some;
use ringway_testing::skip::{is_root, processors};
use ringway_testing::{skip, until};
use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ringway")).arg("bench").args(arguments).output().expect("ringway can be started")
}

#[test]
fn without_the_laboratory_bench_and_demo_name_what_is_missing_and_how_to_install_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let alone = folder.path().join("ringway");
    std::fs::copy(env!("CARGO_BIN_EXE_ringway"), &alone).expect("the switch can be copied");
    for command in ["bench", "demo"] {
        let output =
            Command::new(&alone).args([command, "--help"]).env("PATH", "").output().expect("ringway can be started");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.starts_with(&format!("ringway {command}: ringway-lab is not installed")), "{text}");
        assert!(text.contains("cargo install --path crates/ringway --features lab"), "{text}");
    }
}

#[test]
fn the_laboratory_is_found_beside_the_switch_or_in_path_and_speaks_in_its_name() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let alone = folder.path().join("ringway");
    std::fs::copy(env!("CARGO_BIN_EXE_ringway"), &alone).expect("the switch can be copied");
    let laboratory = Path::new(env!("CARGO_BIN_EXE_ringway-lab")).parent().expect("a folder");
    for (program, path) in [(alone.as_path(), laboratory), (Path::new(env!("CARGO_BIN_EXE_ringway")), Path::new(""))] {
        let arguments = ["-v", "bench", "--runtime-dir", "/nowhere", "--help"];
        let output = Command::new(program).args(arguments).env("PATH", path).output().expect("ringway can be started");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains("Usage: ringway bench "), "{text}");
    }
}

#[test]
fn the_list_names_every_experiment_with_its_source() {
    let output = bench(&["--list"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success());
    let fairness = "shaping shaping-slow shaping-fast shaping-counted shaping-sizes shaping-ports shaping-burst shaping-tcp shares \
                    shares-vhost flooded flooded-vhost isolation policy drop-rate programs programs-batch \
                    programs-forwarder programs-bridge programs-forwarding";
    for name in "headline destinations round-trip idle-ports".split(' ').chain(fairness.split_whitespace()) {
        let is_it = |line: &str| line.split_whitespace().next() == Some(name) && line.contains('(');
        assert!(text.lines().any(is_it), "{name} is missing:\n{text}");
    }
}

#[test]
fn an_experiment_that_does_not_exist_is_named_with_those_that_do() {
    let output = bench(&["fig99"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert!(text.contains("\"fig99\"") && text.contains("headline"), "{text}");
}

#[test]
fn of_an_experiment_only_the_curves_that_are_named_are_measured() {
    if processors() < 2 {
        skip!("needs two processors");
    }
    let output = bench(&["drop-rate", "--quick", "--only", "ringway, no such policy"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert!(text.contains("\"ringway, no such policy\"") && text.contains("\"ringway\""), "{text}");

    let folder = tempfile::tempdir().expect("a temporary folder");
    let json = folder.path().join("bench.json");
    let output = bench(&["drop-rate", "--quick", "--only", "ringway", "--json", json.to_str().expect("UTF-8")]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&std::fs::read(&json).expect("a JSON file")).expect("JSON");
    let figure = &report["figures"][0];
    assert!(figure["command"].as_str().is_some_and(|command| command.contains("--only \"ringway\"")), "{figure:#}");
    for point in figure["points"].as_array().expect("points") {
        assert!(point["series"] == "ringway" || point["series"] == "anchor", "{point:#}");
    }
}

#[test]
fn what_policy_and_a_flooding_neighbour_cost_is_measured_between_ports_of_both_kinds() {
    if processors() < 2 {
        skip!("needs two processors");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let json = folder.path().join("bench.json");
    // Windows in which a thread lost its core do not count: on a busy machine that can be all of them.
    until("no program takes the cores from the experiments", || {
        let output = bench(&["policy", "isolation", "--quick", "--json", json.to_str().expect("UTF-8")]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() || said.contains("Ringway itself could not be measured"), "{said}");
        output.status.success()
    });
    let report: Value = serde_json::from_slice(&std::fs::read(&json).expect("a JSON file")).expect("JSON");
    let figures = report["figures"].as_array().expect("figures");
    let names: Vec<_> = figures.iter().filter_map(|figure| figure["name"].as_str()).collect();
    assert_eq!(
        names,
        [
            "policy",
            "policy-vhost",
            "guard",
            "guard-vhost",
            "isolation",
            "isolation-rate",
            "isolation-vhost",
            "isolation-rate-vhost"
        ]
    );
    for figure in figures {
        let name = figure["name"].as_str().expect("a name");
        assert_eq!(figure["unavailable"].as_array().map(Vec::len), Some(0), "{name}: {:#}", figure["unavailable"]);
    }
}

#[test]
fn a_quick_run_gives_every_promised_field_and_a_plot_per_figure() {
    if processors() < 2 {
        skip!("needs two processors");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let json = folder.path().join("bench.json");
    let plots = folder.path().join("plots");
    let paths = [json.to_str().expect("UTF-8"), plots.to_str().expect("UTF-8")];
    let output = bench(&["headline", "drop-rate", "round-trip", "--quick", "--json", paths[0], "--plots", paths[1]]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let report: Value = serde_json::from_slice(&std::fs::read(&json).expect("a JSON file")).expect("JSON");
    for field in ["cpu", "kernel", "processors", "cores", "version", "date"] {
        assert!(!report["machine"][field].is_null(), "machine.{field} is missing");
    }
    let version =
        Command::new(env!("CARGO_BIN_EXE_ringway")).arg("--version").output().expect("ringway can be started");
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let measured = report["machine"]["version"].as_str().expect("a version");
    assert!(version.starts_with(&format!("ringway {measured}")), "{version}");
    let figures = report["figures"].as_array().expect("figures");
    assert_eq!(figures.len(), 6, "round-trip has three figures, drop-rate two, headline one");
    for figure in figures {
        let name = figure["name"].as_str().expect("a name");
        assert!(figure["command"].as_str().is_some_and(|command| command.starts_with("ringway bench")), "{name}");
        let points = figure["points"].as_array().expect("points");
        let disturbed =
            figure["disturbed"].as_array().is_some_and(|series| series.iter().any(|name| name == "ringway"));
        let ours = points.iter().any(|point| point["series"] == "ringway");
        assert!(ours || disturbed, "{name}: no result of Ringway: {figure:#}");
        for point in points {
            assert!(point["class"] == "near" || point["class"] == "far", "{name}: {point:#}");
            assert!(point["value"]["median"].as_f64().is_some_and(|value| value > 0.0), "{name}: {point:#}");
            assert!(point["value"]["windows"].as_u64().is_some_and(|windows| windows > 0), "{name}: {point:#}");
            assert!(point["ratios"].is_object(), "{name}: {point:#}");
        }
        assert!(plots.join(format!("{name}.svg")).is_file(), "{name} has no plot");
    }

    // Renders the results from the file again: a document with a section for each experiment, and equal plots.
    let again = folder.path().join("again");
    let summary = folder.path().join("summary.json");
    let summary = summary.to_str().expect("UTF-8");
    let output = bench(&["--report", paths[0], "--plots", again.to_str().expect("UTF-8"), "--summary", summary]);
    let document = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for name in ["headline", "drop-rate", "round-trip"] {
        let section = document.split_once(&format!("\n## {name}\n")).expect("a section for each experiment").1;
        assert!(section.contains(&format!("\nCommand: `ringway bench {name} --quick`.\n\n![")), "{document}");
        assert!(document.contains(&format!("\n| [{name}](#{name}) | ")), "{document}");
    }
    assert!(document.contains("\n| ringway / anchor | "), "{document}");
    assert!(document.contains("\nNot run: `destinations`, "), "{document}");
    for figure in figures {
        let plot = format!("{}.svg", figure["name"].as_str().expect("a name"));
        let [first, second] = [&plots, &again].map(|dir| std::fs::read(dir.join(&plot)).expect("a plot"));
        assert!(first == second, "{plot} differs");
    }
    // The document is made from the summary alone.
    let output = bench(&["--report", summary, "--plots", again.to_str().expect("UTF-8")]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout) == document, "the summary gives a different document");
}

#[test]
fn netmap_and_libpcap_programs_are_measured_beside_the_client_library_and_packet_sockets() {
    if processors() < 2 {
        skip!("needs two processors");
    }
    if Command::new("cc").arg("--version").output().is_err() {
        skip!("needs a C compiler");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let json = folder.path().join("bench.json");
    let json = json.to_str().expect("UTF-8");
    // A program that gets no processor for a window gives no figure.
    let figures = until_some("each program has a processor", || {
        let output = bench(&["programs", "programs-forwarder", "programs-bridge", "--quick", "--json", json]);
        assert!(output.status.success(), "{output:?}");
        let report: Value = serde_json::from_slice(&std::fs::read(json).expect("a JSON file")).expect("JSON");
        let figures = report["figures"].as_array().expect("figures").clone();
        let missing = |figure: &Value| figure["unavailable"].as_array().expect("curves").clone();
        let missing: Vec<Value> = figures.iter().flat_map(missing).collect();
        println!("not available: {missing:#?}");
        (missing.is_empty() || !is_root()).then_some(figures)
    });
    let names: Vec<_> = figures.iter().filter_map(|figure| figure["name"].as_str()).collect();
    let first = ["programs", "programs-written", "programs-threads", "programs-start"];
    let then = ["forwarder", "forwarder-instructions", "bridge", "bridge-both"];
    assert_eq!(names, [first, then].concat());
    for figure in &figures {
        let name = figure["name"].as_str().expect("a name");
        assert_eq!(figure["notes"].as_array().map(Vec::len), Some(0), "{name}: {:#}", figure["notes"]);
    }
    // Instructions do not depend on the machine's load.
    let points = figures[5]["points"].as_array().expect("points");
    let of = |series: &str| points.iter().find(|point| point["series"] == series && point["x"] == 1514.0);
    let ratio = of("ringway").map(|point| &point["ratios"]["copies"]["median"]);
    assert!(ratio.and_then(Value::as_f64).is_some_and(|ratio| ratio <= 0.5), "swapped frames: {points:#?}");
}

/// Returns the figures of an experiment with `--quick`.
fn quick_figures(experiment: &str) -> Vec<Value> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let json = folder.path().join("bench.json");
    // Windows in which a thread lost its core do not count: on a busy machine that can be all of them.
    until("no program takes the cores from the experiment", || {
        let output = bench(&[experiment, "--quick", "--json", json.to_str().expect("UTF-8")]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() || said.contains("Ringway itself could not be measured"), "{said}");
        output.status.success()
    });
    let report: Value = serde_json::from_slice(&std::fs::read(&json).expect("a JSON file")).expect("JSON");
    report["figures"].as_array().expect("figures").clone()
}

#[test]
#[ignore = "takes minutes where other tests take the cores: make nightly"]
fn forwarding_programs_are_measured_beside_built_in_learning_and_open_vswitch() {
    if processors() < 2 {
        skip!("needs two processors");
    }
    let has_target = |compiler: &&str| {
        let target = ["--print", "target-libdir", "--target", "wasm32-unknown-unknown"];
        let folder = Command::new(compiler).args(target).output();
        folder.is_ok_and(|found| Path::new(String::from_utf8_lossy(&found.stdout).trim()).is_dir())
    };
    if !["rustc", "/usr/bin/rustc"].iter().any(has_target) {
        skip!("needs a Rust compiler for WebAssembly");
    }
    let figures = quick_figures("programs-forwarding");
    let names: Vec<_> = figures.iter().filter_map(|figure| figure["name"].as_str()).collect();
    assert_eq!(names, ["programs-64", "programs-rules-64-1", "programs-replaced", "programs-replaced-all"]);
    for figure in &figures {
        let name = figure["name"].as_str().expect("a name");
        for missing in figure["unavailable"].as_array().expect("curves") {
            let reason = missing["reason"].as_str().unwrap_or_default();
            let is_peer = missing["peer"].as_str().is_some_and(|peer| peer.starts_with("ovs-dpdk"));
            assert!(is_peer && reason.contains("is not installed"), "{name}: {missing:#}");
        }
        assert_eq!(figure["notes"].as_array().map(Vec::len), Some(0), "{name}: {:#}", figure["notes"]);
    }
}

#[test]
#[ignore = "takes minutes where other tests take the cores: make nightly"]
fn rates_to_the_wire_and_from_it_are_measured_beside_testpmd_open_vswitch_and_a_linux_bridge() {
    if processors() < 2 {
        skip!("needs two processors");
    }
    if !is_root() {
        skip!("needs root");
    }
    let figures = quick_figures("wire");
    let names: Vec<_> = figures.iter().filter_map(|figure| figure["name"].as_str()).collect();
    assert_eq!(names, ["wire-out", "wire-in"]);
    for figure in &figures {
        let name = figure["name"].as_str().expect("a name");
        let missing = figure["unavailable"].as_array().expect("peers");
        for peer in missing {
            let reason = peer["reason"].as_str().unwrap_or_default();
            let is_optional =
                ["testpmd af_xdp", "testpmd af_xdp io", "ovs-dpdk af_xdp"].iter().any(|name| peer["peer"] == *name);
            assert!(is_optional && reason.contains("is not installed"), "{name}: {peer:#}");
        }
        assert_eq!(figure["notes"].as_array().map(Vec::len), Some(0), "{name}: {:#}", figure["notes"]);
    }
}

#[test]
#[ignore = "takes minutes where other tests take the cores: make nightly"]
fn guests_on_two_hosts_are_measured_beside_qemus_own_way() {
    if processors() < 2 {
        skip!("needs two processors");
    }
    if !is_root() {
        skip!("needs root");
    }
    if std::env::var_os("RINGWAY_NO_QEMU").is_some() {
        skip!("guests are left out, as RINGWAY_NO_QEMU is set");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let json = folder.path().join("bench.json");
    let json = json.to_str().expect("UTF-8");
    let output = bench(&["hosts", "--quick", "--json", json]);
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&std::fs::read(json).expect("a JSON file")).expect("JSON");
    let curves = |figure: &Value| -> BTreeSet<String> {
        let points = figure["points"].as_array().expect("points");
        points.iter().filter_map(|point| point["series"].as_str()).map(str::to_owned).collect()
    };
    let ways = ["ringway", "ringway, pollers bound", "qemu tap, linux bridge"];
    let cut = ["ringway", "ringway, coalesce off", "ringway, pollers bound", "qemu tap, linux bridge"];
    let expected = [
        ("hosts-tcp", &ways[..]),
        ("hosts-tcp-interrupts", &ways),
        ("hosts-tcp-sending", &ways[..2]),
        ("hosts-tcp-receiving", &ways[..2]),
        ("hosts-tcp-cut", &cut),
        ("hosts-tcp-cut-interrupts", &cut),
        ("hosts-tcp-cut-sending", &cut[..3]),
        ("hosts-tcp-cut-receiving", &cut[..3]),
        ("hosts-ping", &ways),
    ];
    let figures = report["figures"].as_array().expect("figures");
    for (figure, (name, expected)) in figures.iter().zip(expected) {
        assert_eq!(figure["name"], name);
        assert_eq!(figure["unavailable"].as_array().map(Vec::len), Some(0), "{name}: {:#}", figure["unavailable"]);
        assert_eq!(curves(figure), expected.iter().map(|&series| series.to_owned()).collect(), "{name}");
        let values = figure["points"].as_array().into_iter().flatten().map(|point| point["value"]["median"].as_f64());
        assert!(values.into_iter().all(|value| value.is_some_and(|value| value > 0.0)), "{figure:#}");
    }
    assert_eq!(figures.len(), expected.len());
}

#[test]
fn what_needs_a_compiler_is_left_out_with_a_line_where_there_is_none() {
    if processors() < 2 {
        skip!("needs two processors");
    }
    let mut bench = Command::new(env!("CARGO_BIN_EXE_ringway"));
    let output = bench.args(["bench", "programs-forwarder", "--quick"]).env("PATH", "").output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    let lines = text.lines().filter(|line| line.contains("ringway not available: forwarder.c needs a C compiler"));
    assert_eq!(lines.count(), 2, "{text}");
}

#[test]
fn a_report_of_a_file_that_is_none_names_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("other.json");
    std::fs::write(&file, "{}").expect("a file");
    let output = bench(&["--report", file.to_str().expect("UTF-8")]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("other.json"), "{text}");
}
