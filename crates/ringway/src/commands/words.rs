//! `KEY=VALUE` words, and the requests that they make.

use std::cell::RefCell;
use std::process::ExitCode;
use std::str::FromStr;

use ringway_api::client::ClientError;
use ringway_api::types::Done;
use ringway_commands::context::{USAGE, complain, fail};
use ringway_commands::out;
use ringway_config::keys::{Entry, Node, Value};
use ringway_config::{KeyScope, Mistake};

/// Reads `KEY=VALUE` words as a table. Notes a mistake for each other word.
pub fn read(words: &[String], mistakes: &RefCell<Vec<Mistake>>) -> Node {
    let wrong = |key: &str, what: &str, right: &str| {
        let mistake = Mistake { key: key.to_owned(), span: None, what: what.to_owned(), right: right.to_owned() };
        mistakes.borrow_mut().push(mistake);
    };
    let mut entries: Vec<Entry> = Vec::new();
    for word in words {
        match word.split_once('=') {
            // bash expands ingress={rate="1Gbit",burst="64KiB"} to ingress=rate=1Gbit ingress=burst=64KiB.
            Some((key, value)) if entries.iter().any(|e| e.key == key) && value.contains('=') => {
                wrong(key, "given twice, as the shell takes braces apart", &quoting(key));
            }
            Some((key, _)) if entries.iter().any(|e| e.key == key) => wrong(key, "given twice", "give it once"),
            Some((key, value)) if lost_quotes(value) => {
                wrong(key, &format!("{value:?} cannot be read: did the shell take its quotes?"), &quoting(key));
            }
            Some((key, value)) if !key.is_empty() => {
                entries.push(Entry { key: key.to_owned(), span: None, node: Node::from_word(value) });
            }
            _ => wrong("", &format!("{word:?} is not KEY=VALUE"), "write it like weight=2"),
        }
    }
    Node::new(Value::Table(entries)).with_dotted_keys()
}

/// Reads `KEY=VALUE` words and checks them without the daemon.
fn checked(scope: KeyScope, words: &[String]) -> Result<Node, Vec<Mistake>> {
    let mistakes = RefCell::default();
    let table = scope.check(read(words, &mistakes), &mistakes);
    let mistakes = mistakes.into_inner();
    if mistakes.is_empty() { Ok(table) } else { Err(mistakes) }
}

/// Returns true if a value begins like a table or a list and is not valid TOML.
fn lost_quotes(value: &str) -> bool {
    value.starts_with(['{', '[']) && matches!(Node::from_word(value).value, Value::Text(_))
}

/// Returns the advice for quoting this key in a shell.
fn quoting(key: &str) -> String {
    let value = match key.split('.').next().unwrap_or(key) {
        "ingress" | "egress" => "{rate=\"1Gbit\",burst=\"64KiB\"}",
        "storm" => "{broadcast=\"1kpps\"}",
        "forwarding" => "{program=\"acl.wasm\"}",
        _ => "[\"...\",\"...\"]",
    };
    format!("put all of it in single quotes, and texts in it in double ones: '{key}={value}'")
}

/// Requests a change of the port, bucket or switch of this name, and prints the changes.
pub fn change<N: FromStr<Err = String>>(
    command: &str,
    scope: KeyScope,
    name: &str,
    words: &[String],
    ask: impl FnOnce(&N, &Node) -> Result<Done, ClientError>,
) -> ExitCode {
    request(command, name, |name| checked(scope, words).map(|keys| ask(name, &keys)))
}

/// Requests a change without keys, and prints the changes.
pub fn change_without_keys<N: FromStr<Err = String>>(
    command: &str,
    name: &str,
    ask: impl FnOnce(&N) -> Result<Done, ClientError>,
) -> ExitCode {
    request(command, name, |name| Ok(ask(name)))
}

/// Parses the name, sends the request and prints the result.
fn request<N: FromStr<Err = String>>(
    command: &str,
    name: &str,
    ask: impl FnOnce(&N) -> Result<Result<Done, ClientError>, Vec<Mistake>>,
) -> ExitCode {
    match name.parse() {
        Ok(name) => print_result(command, ask(&name)),
        Err(what) => {
            complain(command, &what);
            ExitCode::from(USAGE)
        }
    }
}

/// Prints the changes, or why there are none.
pub fn print_result(command: &str, asked: Result<Result<Done, ClientError>, Vec<Mistake>>) -> ExitCode {
    match asked {
        Err(mistakes) => {
            mistakes.iter().for_each(|mistake| complain(command, &mistake.to_string()));
            ExitCode::from(USAGE)
        }
        Ok(Err(error)) => fail(command, &error),
        Ok(Ok(done)) if done.changes.is_empty() => out::print("nothing differs\n"),
        Ok(Ok(done)) => out::print(&(done.changes.join("\n") + "\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(words: &[&str]) -> Vec<String> {
        let mistakes = RefCell::default();
        read(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>(), &mistakes);
        mistakes.into_inner().iter().map(Mistake::to_string).collect()
    }

    #[test]
    fn missing_shell_quotes_are_diagnosed_with_a_corrected_example() {
        let right = "put all of it in single quotes, and texts in it in double ones: 'ingress={rate=\"1Gbit\",burst=\"64KiB\"}'";
        // The words that bash makes of ingress={rate="1Gbit",burst="64KiB"} and of ingress={rate="1Gbit"}.
        let twice = format!("key \"ingress\": given twice, as the shell takes braces apart; {right}");
        assert_eq!(said(&["ingress=rate=1Gbit", "ingress=burst=64KiB"]), [twice]);
        let lost =
            format!("key \"ingress\": \"{{rate=1Gbit}}\" cannot be read: did the shell take its quotes?; {right}");
        assert_eq!(said(&["ingress={rate=1Gbit}"]), [lost]);
        assert!(said(&["forwarding={program=acl.wasm}"])[0].ends_with(": 'forwarding={program=\"acl.wasm\"}'"));
        assert!(said(&["mac=[02:00:00:00:00:01]"])[0].ends_with("in double ones: 'mac=[\"...\",\"...\"]'"));
        assert_eq!(said(&["weight=1", "weight=2"]), ["key \"weight\": given twice; give it once"]);
        let none: [String; 0] = [];
        assert_eq!(
            said(&["ingress={rate=\"1Gbit\"}", "trunk=[10,\"20-29\"]", "egress={}", "allow=[]", "device=a[0"]),
            none
        );
    }
}
