//! The keys of a port, bucket or switch, and their check in a command before the daemon reads them.

use std::cell::RefCell;

use super::limit::{Bucket, BucketKeys};
use super::port::{self, Port, PortKey, port_keys};
use super::switch::Switch;
use crate::keys::{Class, Entry, Key, Keys, Mistake, Node, Table, Value};

/// The object that keys belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyScope {
    /// `port add`, `port set`.
    Port,
    /// `bucket set`.
    Bucket,
    /// `switch set`.
    Switch,
}

impl KeyScope {
    /// Returns the keys with their defaults.
    pub fn keys(self) -> Vec<PortKey> {
        let of_all = |keys: Vec<Key>| keys.into_iter().map(|key| PortKey { key, kinds: Vec::new() }).collect();
        match self {
            Self::Port => port_keys(),
            Self::Bucket => of_all(BucketKeys::default().keys()),
            Self::Switch => of_all(Switch::default().keys()),
        }
    }

    /// Returns the table of the configuration with these keys.
    pub fn section(self) -> &'static str {
        match self {
            Self::Port => "[port.NAME]",
            Self::Bucket => "[bucket.NAME]",
            Self::Switch => "[switch.NAME]",
        }
    }

    /// Checks keys without the daemon: their names, and their values one by one. Returns the keys for the daemon: the word of a key whose
    /// values are texts becomes a text, even if it is also a number.
    pub fn check(self, table: Node, mistakes: &RefCell<Vec<Mistake>>) -> Node {
        let keys = Keys::new("", &table, None, mistakes).without_present();
        match self {
            Self::Port => {
                Port::check_values(&keys);
                port::finish(keys);
            }
            // A bucket always gets all of its keys.
            Self::Bucket => drop(Bucket::read(keys)),
            Self::Switch => {
                Switch::default().read(&keys);
                keys.finish();
            }
        }
        let known: Vec<Key> = self.keys().into_iter().map(|known| known.key).collect();
        with_texts(table, &known)
    }
}

/// Converts the words of keys whose values are texts.
fn with_texts(table: Node, keys: &[Key]) -> Node {
    let value = match table.value {
        Value::Table(entries) => Value::Table(texts(entries, keys)),
        Value::Part(entries) => Value::Part(texts(entries, keys)),
        other => other,
    };
    Node { value, ..table }
}

fn texts(entries: Vec<Entry>, keys: &[Key]) -> Vec<Entry> {
    let text = |entry: Entry| {
        let class = keys.iter().find(|key| key.name == entry.key).map(|key| &key.shape.class);
        let node = match (class, &entry.node.word) {
            (Some(Class::Text | Class::Texts), Some(word)) => Node::new(Value::Text(word.clone())),
            (Some(Class::Table(inner) | Class::TableOrWord(inner)), _) => with_texts(entry.node, inner),
            _ => entry.node,
        };
        Entry { node, ..entry }
    };
    entries.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sent(scope: KeyScope, words: &[(&str, &str)]) -> Result<serde_json::Value, Vec<String>> {
        let entry =
            |(key, word): &(&str, &str)| Entry { key: (*key).to_owned(), span: None, node: Node::from_word(word) };
        let table = Node::new(Value::Table(words.iter().map(entry).collect())).with_dotted_keys();
        let mistakes = RefCell::default();
        let json = scope.check(table, &mistakes).to_json();
        let mistakes: Vec<String> = mistakes.into_inner().iter().map(ToString::to_string).collect();
        if mistakes.is_empty() { Ok(json) } else { Err(mistakes) }
    }

    #[test]
    fn a_word_is_a_text_where_the_key_is_one() {
        let words = [("device", "0"), ("weight", "2"), ("ingress.bucket", "1"), ("ingress.frames_burst", "64")];
        let json = json!({"device": "0", "weight": 2, "ingress.bucket": "1", "ingress.frames_burst": 64});
        assert_eq!(sent(KeyScope::Port, &words), Ok(json));
        assert_eq!(sent(KeyScope::Bucket, &[("rate", "1Gbit")]), Ok(json!({"rate": "1Gbit"})));
        assert_eq!(sent(KeyScope::Switch, &[("mac_entries", "64")]), Ok(json!({"mac_entries": 64})));
    }

    #[test]
    fn mistakes_in_dotted_keys_are_told_at_the_key_with_what_would_be_right() {
        let said = |key, word| sent(KeyScope::Port, &[(key, word)]).unwrap_err();
        assert_eq!(said("ingress.rte", "1Gbit"), ["key \"ingress.rte\": unknown key; did you mean \"rate\"?"]);
        assert_eq!(said("ingres.rate", "1Gbit"), ["key \"ingres.rate\": unknown key; did you mean \"ingress.rate\"?"]);
        assert_eq!(
            said("ingress.rate", "2Gbps"),
            ["key \"ingress.rate\": \"2Gbps\" is not a rate in bits per second; write a number and one of bit, kbit, \
             Mbit, Gbit, like \"500Mbit\""]
        );
        assert_eq!(
            said("weight.x", "1"),
            ["key \"weight.x\": weight is one value and has no keys; write weight=VALUE"]
        );
        assert_eq!(
            said("ingress.rate.x", "1"),
            ["key \"ingress.rate.x\": rate is one value and has no keys; write rate=VALUE"]
        );
        let twice = sent(KeyScope::Port, &[("ingress", "{}"), ("ingress.rate", "1Gbit")]).unwrap_err();
        assert_eq!(twice, ["key \"ingress\": given twice; give it whole, or its keys with a dot"]);
        // Only the daemon knows if there is a rate.
        assert!(sent(KeyScope::Port, &[("ingress.burst", "64KiB")]).is_ok());
    }
}
