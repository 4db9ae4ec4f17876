//! `KEY=VALUE` words, and what came of a change that was asked for.

use std::cell::RefCell;
use std::process::ExitCode;

use ringway_control::api::types::Done;
use ringway_control::client::ClientError;
use ringway_control::config::node::{Entry, Node, Value};
use ringway_control::config::{Mistake, Name};

use super::{USAGE, complain, fail};
use crate::out;

/// Reads `KEY=VALUE` words as a table, and notes those that are none.
pub fn read(words: &[String], mistakes: &RefCell<Vec<Mistake>>) -> Node {
    let wrong = |key: &str, what: &str, right: &str| {
        let mistake = Mistake { key: key.to_owned(), span: None, what: what.to_owned(), right: right.to_owned() };
        mistakes.borrow_mut().push(mistake);
    };
    let mut entries: Vec<Entry> = Vec::new();
    for word in words {
        match word.split_once('=') {
            Some((key, _)) if entries.iter().any(|e| e.key == key) => wrong(key, "given twice", "give it once"),
            Some((key, value)) if !key.is_empty() => {
                entries.push(Entry { key: key.to_owned(), span: None, node: Node::from_word(value) });
            }
            _ => wrong("", &format!("{word:?} is not KEY=VALUE"), "write it like weight=2"),
        }
    }
    Node::new(Value::Table(entries))
}

/// Asks for a change of what has this name, whose keys only the daemon can judge.
pub fn change(
    command: &str,
    name: &str,
    words: &[String],
    ask: impl FnOnce(&Name, &Node) -> Result<Done, ClientError>,
) -> ExitCode {
    let name: Name = match name.parse() {
        Ok(name) => name,
        Err(what) => {
            complain(command, &what);
            return ExitCode::from(USAGE);
        }
    };
    let mistakes = RefCell::default();
    let keys = read(words, &mistakes);
    let mistakes = mistakes.into_inner();
    end(command, if mistakes.is_empty() { Ok(ask(&name, &keys)) } else { Err(mistakes) })
}

/// Says what was changed, or why nothing was.
pub fn end(command: &str, asked: Result<Result<Done, ClientError>, Vec<Mistake>>) -> ExitCode {
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
