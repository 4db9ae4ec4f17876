//! `ringway extcap --capture`: frames of a port into Wireshark's fifo.

use std::process::ExitCode;
use std::sync::atomic::Ordering;

use clap::ValueEnum as _;
use ringway_api::PortRef;
use ringway_api::capture::CaptureQuery;
use ringway_commands::context::{Context, USAGE, complain, fail, refuse};
use ringway_filter::Filter;

use super::args::Args;
use super::fifo::Fifo;
use super::select::Select;
use crate::commands::capture::stop_on_signals;

/// Captures until the reader of the fifo has gone, a signal, or the end of the port or the daemon. What ends a capture against the
/// user's will is said on stderr, which Wireshark shows.
pub fn run(port: &PortRef, args: &Args, context: &Context) -> ExitCode {
    let stop = match stop_on_signals() {
        Ok(stop) => stop,
        Err(error) => {
            complain("extcap", &format!("cannot catch signals: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let Some(path) = &args.fifo else { return refuse("extcap", "which fifo: add --fifo FIFO") };
    // Before anything that may fail: a reader waits for the end of a fifo that nothing has opened for ever.
    let mut fifo = match Fifo::open(path, stop.clone()) {
        Ok(Some(fifo)) => fifo,
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => {
            complain("extcap", &format!("cannot write to {}: {error}", path.display()));
            return ExitCode::FAILURE;
        }
    };
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let snaplen = match given(&args.snaplen).map(|text| text.parse::<u32>().map_err(|_| text)).transpose() {
        Ok(snaplen) => snaplen,
        Err(text) => {
            return refuse("extcap", &format!("--snaplen: {text:?} is not a number of bytes; write 14 to 262144"));
        }
    };
    let mut query = CaptureQuery {
        snaplen,
        count: None,
        duration: None,
        direction: args.direction.to_possible_value().map(|value| value.get_name().to_owned()),
        drops: Some(args.drops),
        buffer: given(&args.buffer),
    };
    if let Err(mistakes) = query.read() {
        for mistake in mistakes {
            complain("extcap", &format!("--{}: {}", mistake.key, mistake.what));
        }
        return ExitCode::from(USAGE);
    }
    let expression = given(&args.extcap_capture_filter);
    let filter = match expression.as_deref().map(Filter::compile).transpose() {
        Ok(filter) => filter,
        Err(what) => return refuse("extcap", &what.to_string()),
    };
    let end = || stop.load(Ordering::Relaxed);
    let (client, reader) = (context.client(), fifo.reader());
    let captured = match (&filter, &expression) {
        (Some(filter), Some(expression)) => {
            // The filter judges whole frames.
            query.snaplen = None;
            let accepts = |bytes: &[u8], len| filter.accepts(bytes, len);
            let select = Select::new(&mut fifo, accepts, expression, snaplen.unwrap_or(u32::MAX));
            client.capture(port, &query, || Ok(select), || end() || reader.is_gone())
        }
        _ => client.capture(port, &query, || Ok(&mut fifo), || end() || reader.is_gone()),
    };
    match captured {
        Err(_) if reader.is_gone() => ExitCode::SUCCESS,
        Err(error) => fail("extcap", &error),
        Ok(captured) if captured.reader_gone || end() || reader.is_gone() => ExitCode::SUCCESS,
        Ok(_) => {
            complain(
                "extcap",
                &format!(
                    "the capture of {port} has ended: the port was removed, or an administrator ended the capture"
                ),
            );
            ExitCode::FAILURE
        }
    }
}
