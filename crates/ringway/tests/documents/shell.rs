//! The `ringway` commands in shell lines.

use std::iter::Peekable;
use std::str::Chars;

/// A token of a shell line.
#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    /// The end of a command: `;`, `|`, `&`, `&&`, `||`, a newline.
    End,
    /// `<`, `>`, `2>`: the next word is a file.
    Redirect,
}

/// Returns the words of each `ringway` command, with the number of its first line, from 1.
pub fn commands(text: &str) -> Vec<(usize, Vec<String>)> {
    let mut commands = Vec::new();
    let mut line = 1;
    // A line that ends with a backslash continues.
    for logical in text.replace("\\\n", "\u{b}").split('\n') {
        for words in split(&logical.replace('\u{b}', " ")) {
            // The command may follow `ip netns exec NAME`, `timeout 5` or `NAME=VALUE`.
            if let Some(at) = words.iter().position(|word| word == "ringway").filter(|at| may_precede(&words[..*at])) {
                commands.push((line, words[at..].to_vec()));
            }
        }
        line += 1 + logical.matches('\u{b}').count();
    }
    commands
}

fn may_precede(words: &[String]) -> bool {
    words.first().is_none_or(|first| {
        first.contains('=')
            || ["ip", "timeout", "sudo", "exec", "until", "while", "if", "watch"].contains(&first.as_str())
    })
}

/// Returns the words of each command of a line, without redirections and comments.
fn split(line: &str) -> Vec<Vec<String>> {
    let (mut commands, mut words, mut to_file) = (Vec::new(), Vec::new(), false);
    for token in tokens(line) {
        match token {
            Token::End => commands.push(std::mem::take(&mut words)),
            Token::Redirect => to_file = true,
            Token::Word(_) if to_file => to_file = false,
            Token::Word(word) => words.push(word),
        }
    }
    commands.push(words);
    commands.retain(|words| !words.is_empty());
    commands
}

fn tokens(line: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut chars = line.chars().peekable();
    while let Some(&c) = chars.peek() {
        match c {
            ' ' | '\t' => {
                chars.next();
            }
            '#' => break,
            ';' | '|' | '&' | '(' | ')' => {
                chars.next();
                tokens.push(Token::End);
            }
            '<' | '>' => {
                while chars.next_if(|c| "<>&".contains(*c)).is_some() {}
                tokens.push(Token::Redirect);
            }
            _ => tokens.push(Token::Word(word(&mut chars))),
        }
    }
    tokens
}

fn word(chars: &mut Peekable<Chars<'_>>) -> String {
    let mut word = String::new();
    while let Some(c) = chars.next_if(|c| !" \t;|&()<>".contains(*c)) {
        match c {
            '\'' => word.extend(chars.by_ref().take_while(|c| *c != '\'')),
            '"' => {
                while let Some(c) = chars.next().filter(|c| *c != '"') {
                    word.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
                }
            }
            '\\' => word.extend(chars.next()),
            _ => word.push(c),
        }
    }
    word
}

#[test]
fn commands_are_found_as_a_shell_finds_them() {
    let text = "ringway capture vm1 -w - | tcpdump -r - 'arp or icmp'   # ringway no\n\
                ip netns exec web ringway status >file; FILE=x ringway port set vm1 \\\n    'ingress={rate=\"1Gbit\"}' \"a b\"\n\
                echo ringway; cat ringway.toml && ringway fdb &\n";
    let found: Vec<(usize, String)> = commands(text).into_iter().map(|(line, words)| (line, words.join("|"))).collect();
    let wanted = [
        (1, "ringway|capture|vm1|-w|-"),
        (2, "ringway|status"),
        (2, "ringway|port|set|vm1|ingress={rate=\"1Gbit\"}|a b"),
        (4, "ringway|fdb"),
    ];
    assert_eq!(found, wanted.map(|(line, words)| (line, words.to_owned())));
}
