//! `ringway extcap`: the ports as interfaces of Wireshark, by the extcap protocol (extcap(4), Wireshark Developer's Guide,
//! "Adding Capture Interfaces And Log Sources Using Extcap").
//!
//! Wireshark and tshark call every program of their extcap folders at each start: once for the interfaces, and once for each
//! interface's options. They read stdout by lines, and show stderr to the user when a capture ends: both hold nothing else.

mod args;
mod capture;
mod fifo;
mod install;
mod select;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum as _;
use ringway_api::PortRef;
use ringway_api::client::ClientError;
use ringway_commands::context::{Context, fail, refuse};
use ringway_commands::out;
use ringway_filter::Filter;

use crate::commands::capture::Direction;
pub use args::Args;

/// What the names of all interfaces begin with.
const PREFIX: &str = "ringway-";

/// Longest wait for the list of ports: Wireshark shows no window until every extcap program has answered.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Returns the arguments that are meant: `ringway-extcap ...` is `ringway extcap ...`.
pub fn by_name(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    let is_extcap = arguments.first().and_then(|own| Path::new(own).file_name().map(|name| name == install::PROGRAM));
    if is_extcap == Some(true) {
        arguments.insert(1, "extcap".into());
    }
    arguments
}

/// Runs the command.
pub fn run(args: Args, context: &Context) -> ExitCode {
    if args.install || args.uninstall {
        let place = install::Place::of(args.user, args.system, args.dir);
        return if args.install { install::install(&place, context) } else { install::uninstall(&place) };
    }
    if args.user || args.system || args.dir.is_some() {
        return refuse("extcap", "--user, --system and --dir belong to --install or --uninstall");
    }
    if args.extcap_cleanup_postkill {
        return ExitCode::SUCCESS;
    }
    if args.extcap_interfaces {
        return list(context);
    }
    let port = match args.extcap_interface.as_deref().map(port_of).transpose() {
        Ok(port) => port,
        Err(what) => return refuse("extcap", &what),
    };
    match (port, args.extcap_capture_filter.as_deref()) {
        (None, _) if args.extcap_dlts || args.extcap_config => {
            refuse("extcap", "which interface: add --extcap-interface ringway-SWITCH:PORT")
        }
        (Some(_), _) if args.extcap_dlts => out::print("dlt {number=1}{name=EN10MB}{display=Ethernet}\n"),
        (Some(_), _) if args.extcap_config => out::print(&config()),
        (Some(port), _) if args.capture => capture::run(&port, &args, context),
        (_, Some(filter)) => check(filter),
        _ if args.extcap_version.is_some() => out::print(&version()),
        _ => refuse(
            "extcap",
            "nothing to do: \"ringway extcap --install\" shows the ports in Wireshark, \
             \"ringway extcap --extcap-interfaces\" lists them",
        ),
    }
}

/// Returns the port of an interface.
fn port_of(interface: &str) -> Result<PortRef, String> {
    let port = interface.strip_prefix(PREFIX).map(str::parse::<PortRef>);
    match port {
        Some(Ok(port)) if port.switch.is_some() => Ok(port),
        Some(Err(what)) => Err(format!("{interface:?} is no interface: {what}")),
        _ => Err(format!("{interface:?} is no interface: write {PREFIX}SWITCH:PORT")),
    }
}

fn version() -> String {
    format!("extcap {{version={}}}{{display=Ringway}}\n", env!("CARGO_PKG_VERSION"))
}

/// Lists all ports. Without a daemon there are none, and that is no failure: Wireshark asks at each start.
fn list(context: &Context) -> ExitCode {
    let mut text = version();
    match context.client().patience(ANSWER_WITHIN).ports() {
        Ok(ports) => {
            // An end of a pipe cannot be captured.
            for port in ports.into_iter().filter(|port| !port.name.contains(['{', '}'])) {
                let (switch, name, kind) = (port.switch, port.name, port.kind);
                let _ = writeln!(
                    text,
                    "interface {{value={PREFIX}{switch}:{name}}}{{display=Ringway port {name} of {switch}, {kind}}}"
                );
            }
        }
        Err(ClientError::NoDaemon(_)) => {}
        Err(error) => {
            let _ = fail("extcap", &error);
        }
    }
    out::print(&text)
}

/// Returns the options of a capture. `default` of the `arg` line is for tshark, that of the `value` line for Wireshark's dialogue.
fn config() -> String {
    let ways = [
        (Direction::Both, "both"),
        (Direction::In, "from the port's client (in)"),
        (Direction::Out, "to the port's client (out)"),
    ];
    let mut text = "arg {number=0}{call=--direction}{display=Direction}{type=selector}{default=both}\
        {tooltip=The frames that the port's client sends, the frames that it receives, or both}\n"
        .to_owned();
    for (way, display) in ways {
        let value = way.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
        let default = way == Direction::Both;
        let _ = writeln!(text, "value {{arg=0}}{{value={value}}}{{display={display}}}{{default={default}}}");
    }
    text.push_str(
        "arg {number=1}{call=--drops}{display=Also frames that were dropped}{type=boolflag}{default=false}\
        {tooltip=Each has the reason as a comment: dropped: REASON}\n\
        arg {number=2}{call=--snaplen}{display=Bytes of each frame}{type=unsigned}{range=14,262144}{default=262144}\
        {tooltip=A longer frame is cut after the filter has seen all of it}\n\
        arg {number=3}{call=--buffer}{display=Buffer}{type=string}{default=16MiB}\
        {tooltip=Memory for frames that Wireshark has not read yet, 256KiB to 1GiB}\n",
    );
    text
}

/// Says what is wrong with a filter, on stdout: no text means that nothing is.
fn check(filter: &str) -> ExitCode {
    match Filter::compile(filter) {
        Ok(_) => ExitCode::SUCCESS,
        Err(what) => out::print(&format!("{what}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_names_a_switch_and_a_port() {
        assert_eq!(port_of("ringway-lan0:vm-1.x").unwrap().to_string(), "lan0:vm-1.x");
        for wrong in
            ["", "eth0", "lan0:vm1", "ringway-vm1", "ringway-", "ringway-lan0:", "ringway-a:b:c", "ringway-a:b/c"]
        {
            assert!(port_of(wrong).unwrap_err().contains("is no interface"), "{wrong}");
        }
    }

    #[test]
    fn the_name_of_the_program_decides() {
        let meant = |words: &[&str]| by_name(words.iter().map(Into::into)).join(" ".as_ref()).into_string().unwrap();
        assert_eq!(meant(&["/a/ringway-extcap", "--capture"]), "/a/ringway-extcap extcap --capture");
        assert_eq!(meant(&["ringway", "status"]), "ringway status");
        assert_eq!(meant(&["/ringway-extcap/ringway"]), "/ringway-extcap/ringway");
        assert_eq!(meant(&[]), "");
    }
}
