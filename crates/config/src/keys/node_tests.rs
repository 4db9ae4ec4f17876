//! Text of any shape and depth ends in a value or a mistake, on the stack of a worker of the daemon (2 MiB, as that of a test).

use super::*;

/// What nests, separates, opens or escapes in any of the formats.
const STRUCTURE: &str = "[]{}().,:=\"'\\#-a \n\t";
const LONG: usize = 250_000;

/// Texts in which one or two characters repeat, alone and where a key or a value is expected.
fn texts() -> impl Iterator<Item = String> {
    let pairs = ["[{", "{[", "a.", "a=", "{a=", "[a,", "a.[", "\"a", "\\\""];
    let units = STRUCTURE.chars().map(String::from).chain(pairs.map(str::to_owned));
    units.flat_map(|unit| {
        let [long, run] = [LONG, LONG / 10].map(|bytes| unit.repeat(bytes / unit.len()));
        [format!("a = {long}"), format!("a{long}b = 1"), long, format!("[a{run}b]"), format!("a = {{ b{run}c = 1 }}")]
    })
}

fn depth(node: &Node) -> usize {
    match &node.value {
        Value::List(list) => 1 + list.iter().map(depth).max().unwrap_or(0),
        Value::Table(table) | Value::Part(table) => 1 + table.iter().map(|entry| depth(&entry.node)).max().unwrap_or(0),
        _ => 0,
    }
}

fn table(key: &str) -> Node {
    let node = Node::new(Value::Integer(1));
    Node::new(Value::Table(vec![Entry { key: key.to_owned(), span: None, node }])).with_dotted_keys()
}

#[test]
fn any_structure_repeated_ends_in_a_value_or_a_mistake() {
    for text in texts() {
        if let Ok(node) = Node::from_toml(&text) {
            assert!(depth(&node) < 200, "{}: {}", &text[..20.min(text.len())], depth(&node));
            drop(node.to_json());
        }
        drop(Node::from_word(&text).to_json());
        drop(table(&text).to_json());
        if let Ok(json) = serde_json::from_str::<serde_json::Value>(&text) {
            drop(Node::from_json(&json).with_dotted_keys());
        }
    }
}

#[test]
fn thirty_thousand_dots_are_an_unknown_key() {
    let key = vec!["a"; 30_000].join(".");
    let mistakes = Node::from_toml(&format!("lan = 1\n{key} = 1\n")).unwrap_err();
    assert_eq!(mistakes[0].what, "a key of more than 32 parts");
    assert_eq!(mistakes[0].span.as_ref().map(|span| span.start), Some(8));
    assert_eq!(depth(&table(&key)), 1);
    assert_eq!(depth(&Node::from_word(&format!("{{ {key} = 1 }}"))), 0);
    assert!(Node::from_toml(&format!("[{key}]\n")).is_err());
    // Behind a string of two lines whose second one has a quote.
    let hidden = format!("a = {{ b = '''\n\"''', {key} = 1 }}\n");
    assert_eq!(Node::from_toml(&hidden).unwrap_err()[0].what, mistakes[0].what);
}

#[test]
fn dots_of_values_and_comments_are_no_parts() {
    let list = vec!["\"10.0.0.0/8\""; 40].join(", ");
    let text = format!("# {}\na.b = [{list}]\nc = '{}'\nd = 1.5 # \"\n", ".".repeat(100), ".".repeat(100));
    assert!(Node::from_toml(&text).is_ok());
    assert!(Node::from_toml(&format!("a = \"\"\"\n{}\n\"\"\"\n", ".".repeat(100))).is_ok());
    assert_eq!(depth(&table("a.b.c")), 3);
    assert_eq!(depth(&table(&vec!["a"; 32].join("."))), 32);
}
