//! A parser of the pages: fenced blocks with the comments before them, code in running text, links, headings.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// How a block runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// The block runs to its end, and must succeed.
    Run,
    /// The block runs to its end in a terminal in which a user types `q` ten times a second.
    Terminal,
    /// The block is started. The page continues when the condition, a shell command, succeeds.
    Background { until: Option<String> },
    /// The block is written to a file of this name.
    File(String),
    /// The block does not run, for this reason.
    NotRun(String),
}

/// A fenced code block.
#[derive(Clone, Debug)]
pub struct Block {
    /// The line number of the fence, from 1.
    pub line: usize,
    /// The first word after the fence.
    pub language: String,
    pub text: String,
    pub task: Task,
    /// Hidden commands that run before the block.
    pub setup: Vec<String>,
}

/// The checked parts of a page.
#[derive(Debug)]
pub struct Page {
    /// The path below the root of the repository.
    pub path: String,
    pub blocks: Vec<Block>,
    /// Code in running text, with line numbers.
    pub spans: Vec<(usize, String)>,
    /// Targets of links within the repository, with line numbers.
    pub links: Vec<(usize, String)>,
}

/// Returns `README.md` and every page below `docs`, sorted.
pub fn pages(root: &Path) -> Vec<String> {
    fn below(root: &Path, dir: &str, pages: &mut Vec<String>) {
        for entry in fs::read_dir(root.join(dir)).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{dir}/{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                below(root, &path, pages);
            } else if path.ends_with(".md") {
                pages.push(path);
            }
        }
    }
    let mut pages = vec!["README.md".to_owned()];
    below(root, "docs", &mut pages);
    pages.sort();
    pages
}

impl Page {
    /// Reads a page by its path below `root`.
    pub fn read(root: &Path, path: &str) -> Page {
        let text = fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        let (mut blocks, mut spans, mut links) = (Vec::new(), Vec::new(), Vec::new());
        let (mut task, mut setup): (Option<Task>, Vec<String>) = (None, Vec::new());
        let mut code: Option<(usize, String)> = None;
        let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
        while let Some((number, line)) = lines.next() {
            if let Some(language) = line.strip_prefix("```") {
                let inside: Vec<&str> =
                    lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
                let task = task.take().unwrap_or(Task::Run);
                let text = inside.join("\n") + "\n";
                blocks.push(Block {
                    line: number,
                    language: language.to_owned(),
                    text,
                    task,
                    setup: std::mem::take(&mut setup),
                });
            } else if let Some(comment) = line.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->")) {
                match (comment.strip_prefix("not run: "), comment.strip_prefix("test: ")) {
                    (Some(reason), _) => task = Some(Task::NotRun(reason.to_owned())),
                    (_, Some(how)) => match how.split_once(' ').unwrap_or((how, "")) {
                        ("terminal", "") => task = Some(Task::Terminal),
                        ("background", "") => task = Some(Task::Background { until: None }),
                        ("background", until) => {
                            let until =
                                until.strip_prefix("until ").unwrap_or_else(|| panic!("{path}:{number}: {how}"));
                            task = Some(Task::Background { until: Some(until.to_owned()) });
                        }
                        ("file", name) => task = Some(Task::File(name.to_owned())),
                        ("setup", commands) => setup.push(commands.to_owned()),
                        _ => panic!("{path}:{number}: unknown instruction {how:?}"),
                    },
                    // All other comments are for readers.
                    (None, None) => {}
                }
            } else {
                let waits = task.is_some() || !setup.is_empty();
                assert!(!waits || line.is_empty(), "{path}:{number}: a block must follow the comment before");
                // Code may continue in the next line of its paragraph.
                for (at, part) in line.split('`').enumerate() {
                    match (&mut code, at) {
                        (Some((_, text)), 0) => *text = format!("{text} {part}").trim_end().to_owned(),
                        (Some(_), _) => spans.extend(code.take()),
                        (None, 0) => {}
                        (None, _) => code = Some((number, part.to_owned())),
                    }
                }
                code = code.filter(|_| !line.is_empty());
                links.extend(targets(line).map(|target| (number, target)));
            }
        }
        Page { path: path.to_owned(), blocks, spans, links }
    }
}

/// Returns the targets of `[text](target)` that are not URLs.
fn targets(line: &str) -> impl Iterator<Item = String> + '_ {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    targets.filter(|target| !target.contains("://")).map(str::to_owned)
}

/// Returns the anchors of a page's headings, in GitHub's form.
pub fn anchors(file: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(file).unwrap();
    let headings =
        text.lines().filter_map(|line| line.strip_prefix('#')).map(|line| line.trim_start_matches('#').trim());
    let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
    headings.map(|heading| heading.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")).collect()
}

/// Returns the configuration, with a switch `lan0` if the block has no switch.
pub fn whole_configuration(block: &str) -> String {
    if block.lines().any(|line| line.starts_with("[switch.")) {
        block.to_owned()
    } else {
        format!("{block}\n[switch.lan0]\n")
    }
}

/// Checks that all elements end, in the right order.
pub fn xml(text: &str) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text;
    while let Some((before, tag)) = rest.split_once('<') {
        if before.contains('>') {
            return Err(format!("a \">\" without \"<\" in {before:?}"));
        }
        let (tag, after) = tag.split_once('>').ok_or("a tag without end")?;
        rest = after;
        if tag.matches('\'').count() % 2 != 0 {
            return Err(format!("a value without end in <{tag}>"));
        }
        if let Some(name) = tag.strip_prefix('/') {
            let last = open.pop();
            if last != Some(name) {
                return Err(format!("</{name}> where {last:?} is open"));
            }
        } else if !tag.ends_with('/') {
            open.push(tag.split_whitespace().next().ok_or("a tag without name")?);
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("{open:?} without end")) }
}

#[test]
fn xml_that_is_not_well_formed_is_seen() {
    assert_eq!(xml("<a b='1'>\n<c/><d>x</d>\n</a>"), Ok(()));
    for wrong in ["<a>", "<a></b>", "</a>", "<a b='1/>", "<a"] {
        assert!(xml(wrong).is_err(), "{wrong}");
    }
}
