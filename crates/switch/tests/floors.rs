//! The modules of each crate stand on floors: no module imports, directly or through others, a module that imports it.
//!
//! The test reads the sources. A module is a file of `src/`. A module imports what its `use` declarations and its inline paths name
//! with `crate::`, `self::` or `super::`; the target of a path is the deepest module on it. A module with submodules imports each
//! of them, so a submodule must not name an item of its parent. Code for tests and for fuzzing alone does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The root module of a crate.
const ROOT: &str = "crate";

#[test]
fn no_module_imports_one_that_imports_it() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut mistakes = Vec::new();
    for (name, sources) in crates(&workspace) {
        let graph = Graph::read(&sources);
        for circle in graph.circles() {
            let first = circle.first().expect("a module");
            mistakes.push(format!("{name}: {}", graph.shortest_circle(&circle, first).join(" -> ")));
            mistakes.push(format!("    in this circle: {circle:?}"));
        }
    }
    assert!(mistakes.is_empty(), "modules import one another in a circle:\n{}", mistakes.join("\n"));
}

/// The folder and the source folder of each crate of the workspace.
fn crates(workspace: &Path) -> Vec<(String, PathBuf)> {
    let manifest = fs::read_to_string(workspace.join("Cargo.toml")).expect("the workspace's manifest");
    let members = manifest.split_once("members = [").expect("members").1.split(']').next().expect("an end");
    let folders = members.split('"').skip(1).step_by(2);
    let found: Vec<_> = folders.map(|folder| (folder.to_owned(), workspace.join(folder).join("src"))).collect();
    assert!(found.iter().all(|(_, sources)| sources.is_dir()), "each crate has sources");
    assert!(found.iter().any(|(name, _)| name == "crates/switch"), "the workspace is read");
    found
}

/// What the modules of one crate import.
struct Graph(BTreeMap<String, BTreeSet<String>>);

impl Graph {
    fn read(sources: &Path) -> Graph {
        let mut files = BTreeMap::new();
        collect(sources, &[], &mut files);
        let code: BTreeMap<_, _> = files.iter().map(|(module, file)| (module, Code::read(file))).collect();
        let of_tests: Vec<Vec<String>> = code
            .iter()
            .flat_map(|(module, code)| code.test_modules.iter().map(|name| join(module, std::slice::from_ref(name))))
            .collect();
        let is_named_so = |module: &[String]| module.last().is_some_and(|name| name.ends_with("_tests"));
        let counts =
            |module: &Vec<String>| !is_named_so(module) && !of_tests.iter().any(|test| module.starts_with(test));
        let modules: BTreeSet<Vec<String>> = files.keys().filter(|module| counts(module)).cloned().collect();
        let mut graph = BTreeMap::new();
        for module in &modules {
            let mut imports = BTreeSet::new();
            for path in &code[module].paths {
                if let Some(target) = deepest(path, &modules).filter(|target| target != module) {
                    imports.insert(display(&target));
                }
            }
            imports.extend(modules.iter().filter(|child| is_child(child, module)).map(|child| display(child)));
            graph.insert(display(module), imports);
        }
        Graph(graph)
    }

    fn reachable(&self, from: &str) -> BTreeSet<String> {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(module) = open.pop() {
            open.extend(self.0[&module].iter().filter(|next| seen.insert((*next).clone())).cloned());
        }
        seen
    }

    /// The sets of modules that all import one another.
    fn circles(&self) -> Vec<BTreeSet<String>> {
        let reach: BTreeMap<_, _> = self.0.keys().map(|module| (module, self.reachable(module))).collect();
        let mut circles: Vec<BTreeSet<String>> = Vec::new();
        for module in self.0.keys().filter(|module| reach[module].contains(*module)) {
            if circles.iter().all(|circle| !circle.contains(module)) {
                circles.push(reach[module].iter().filter(|other| reach[other].contains(module)).cloned().collect());
            }
        }
        circles
    }

    /// A shortest way from a module back to itself.
    fn shortest_circle(&self, circle: &BTreeSet<String>, from: &str) -> Vec<String> {
        let mut ways = vec![vec![from.to_owned()]];
        let mut seen = BTreeSet::new();
        loop {
            let mut longer = Vec::new();
            for way in ways {
                for next in self.0[way.last().expect("a module")].iter().filter(|next| circle.contains(*next)) {
                    let way = [way.clone(), vec![next.clone()]].concat();
                    if next == from {
                        return way;
                    }
                    if seen.insert(next.clone()) {
                        longer.push(way);
                    }
                }
            }
            ways = longer;
        }
    }
}

/// The module of the crate's root that a module belongs to.
fn display(module: &[String]) -> String {
    if module.is_empty() { ROOT.to_owned() } else { module.join("::") }
}

fn join(module: &[String], names: &[String]) -> Vec<String> {
    [module, names].concat()
}

fn is_child(module: &[String], parent: &[String]) -> bool {
    module.len() == parent.len() + 1 && module.starts_with(parent)
}

/// The deepest module on a path.
fn deepest(path: &[String], modules: &BTreeSet<Vec<String>>) -> Option<Vec<String>> {
    (0..=path.len()).rev().map(|len| path[..len].to_vec()).find(|module| modules.contains(module))
}

/// The modules in a folder with their files. `main.rs` shares the root with `lib.rs` where there are both: it counts under a name
/// of its own.
fn collect(folder: &Path, module: &[String], files: &mut BTreeMap<Vec<String>, PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() {
            if !(module.is_empty() && name == "bin") {
                collect(&path, &join(module, &[name]), files);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let is_root = module.is_empty() && (name == "lib" || name == "main" && !folder.join("lib.rs").exists());
            let is_main = module.is_empty() && name == "main" && !is_root;
            if !is_main {
                let module = if is_root || name == "mod" { module.to_vec() } else { join(module, &[name]) };
                files.insert(module, path);
            }
        }
    }
}

/// What one file says of other modules, without its tests.
struct Code {
    /// Paths from the root of the crate.
    paths: Vec<Vec<String>>,
    test_modules: Vec<String>,
}

impl Code {
    fn read(file: &Path) -> Code {
        let module = module_of(file);
        let tokens = tokens(&fs::read_to_string(file).expect("a source file"));
        let mut code = Code { paths: Vec::new(), test_modules: Vec::new() };
        // Modules within the file, with the depth of braces at which each ends.
        let (mut inner, mut depth, mut at): (Vec<(String, usize)>, usize, usize) = (Vec::new(), 0, 0);
        while at < tokens.len() {
            if let Some(end) = test_attribute(&tokens, at) {
                at = code.skip_item(&tokens, end);
                continue;
            }
            match tokens[at].as_str() {
                "{" => depth += 1,
                "}" => {
                    depth -= 1;
                    if inner.last().is_some_and(|(_, end)| *end == depth) {
                        inner.pop();
                    }
                }
                "mod" if tokens.get(at + 2).is_some_and(|next| next == "{") => {
                    inner.push((tokens[at + 1].clone(), depth));
                }
                "crate" | "self" | "super"
                    if tokens.get(at + 1).is_some_and(|next| next == "::")
                        && (at == 0 || tokens[at - 1] != "::")
                        && !is_visibility(&tokens, at) =>
                {
                    let names = inner.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
                    let place = join(&module, &names);
                    let (tree, end) = tree(&tokens, at);
                    code.paths.extend(tree.into_iter().filter_map(|path| absolute(&path, &place)));
                    at = end;
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
        code
    }

    /// Passes over an item of the tests, and notes it if it is a module of another file.
    fn skip_item(&mut self, tokens: &[String], mut at: usize) -> usize {
        while tokens[at] == "#" {
            at = closing(tokens, at + 1) + 1;
        }
        let is_use = tokens[at..].iter().take(5).any(|token| token == "use");
        if let Some(place) = tokens[at..].iter().take(5).position(|token| token == "mod")
            && tokens[at + place + 2] == ";"
        {
            self.test_modules.push(tokens[at + place + 1].clone());
        }
        while at < tokens.len() {
            match tokens[at].as_str() {
                ";" => return at + 1,
                "{" if !is_use => return closing(tokens, at) + 1,
                "{" | "(" | "[" => at = closing(tokens, at),
                // A field, a variant or an argument.
                "," => return at + 1,
                "}" | ")" => return at,
                _ => {}
            }
            at += 1;
        }
        at
    }
}

/// The module that a file is.
fn module_of(file: &Path) -> Vec<String> {
    let names: Vec<String> = file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let sources = names.iter().rposition(|name| name == "src").expect("a source folder");
    let mut module = names[sources + 1..].to_vec();
    module.pop_if(|last| last == "mod");
    if module.len() == 1 && (module[0] == "lib" || module[0] == "main") {
        module.clear();
    }
    module
}

/// Where the item begins that an attribute at this place gives to tests alone.
fn test_attribute(tokens: &[String], at: usize) -> Option<usize> {
    if tokens[at] != "#" || tokens.get(at + 1)? != "[" || tokens.get(at + 2)? != "cfg" {
        return None;
    }
    let end = closing(tokens, at + 1);
    let is_for_tests = |place: usize| {
        matches!(tokens[place].as_str(), "test" | "fuzzing") && (tokens[place - 1] != "(" || tokens[place - 2] != "not")
    };
    (at..end).any(is_for_tests).then_some(end + 1)
}

/// Whether the path at this place says who may see an item, as in `pub(in crate::a)`. It can name parents only, and imports nothing.
fn is_visibility(tokens: &[String], at: usize) -> bool {
    at >= 2 && tokens[at - 1] == "in" && tokens[at - 2] == "("
}

/// The bracket that ends what begins with the one at this place.
fn closing(tokens: &[String], at: usize) -> usize {
    let mut depth = 0;
    for (place, token) in tokens.iter().enumerate().skip(at) {
        match token.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return place;
        }
    }
    tokens.len() - 1
}

/// All paths of a tree as `use` has it, and where it ends.
fn tree(tokens: &[String], mut at: usize) -> (Vec<Vec<String>>, usize) {
    let mut path = Vec::new();
    loop {
        if tokens[at] == "{" {
            let end = closing(tokens, at);
            let mut paths = Vec::new();
            at += 1;
            while at < end {
                let (others, next) = tree(tokens, at);
                paths.extend(others.into_iter().map(|other| join(&path, &other)));
                at = next;
                while at < end && tokens[at] != "," {
                    at += 1;
                }
                at += 1;
            }
            return (paths, end + 1);
        }
        path.push(tokens[at].clone());
        at += 1;
        if tokens.get(at).is_none_or(|next| next != "::") {
            return (vec![path], at);
        }
        at += 1;
    }
}

/// A path that begins with `crate`, `self` or `super`, from the root of the crate on.
fn absolute(path: &[String], place: &[String]) -> Option<Vec<String>> {
    let mut from = if path[0] == "crate" { Vec::new() } else { place.to_vec() };
    let mut names = path.iter().skip_while(|name| *name == "crate").peekable();
    while let Some(name) = names.next_if(|name| *name == "self" || *name == "super") {
        if name == "super" {
            from.pop()?;
        }
    }
    Some(
        names
            .filter(|name| *name != "self" && *name != "*")
            .fold(from, |from, name| join(&from, std::slice::from_ref(name))),
    )
}

/// Identifiers, `::` and single signs; no comments, no literals.
fn tokens(text: &str) -> Vec<String> {
    let bytes: Vec<char> = text.chars().collect();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut tokens, mut at) = (Vec::new(), 0);
    let starts = |at: usize, with: &str| with.chars().enumerate().all(|(n, c)| bytes.get(at + n) == Some(&c));
    while at < bytes.len() {
        let c = bytes[at];
        if starts(at, "//") {
            while at < bytes.len() && bytes[at] != '\n' {
                at += 1;
            }
        } else if starts(at, "/*") {
            while at < bytes.len() && !starts(at, "*/") {
                at += 1;
            }
            at += 2;
        } else if starts(at, "r#") && bytes.get(at + 2).is_some_and(|next| is_word(*next)) {
            // A raw identifier: the name follows.
            at += 2;
        } else if c == '"' {
            at += 1;
            while at < bytes.len() && bytes[at] != '"' {
                at += if bytes[at] == '\\' { 2 } else { 1 };
            }
            at += 1;
        } else if c == '\'' {
            // A lifetime or a character.
            let is_char = bytes.get(at + 1) == Some(&'\\') || bytes.get(at + 2) == Some(&'\'');
            at += 1;
            if is_char {
                at += if bytes[at] == '\\' { 2 } else { 1 };
                while at < bytes.len() && bytes[at] != '\'' {
                    at += 1;
                }
                at += 1;
            }
        } else if is_word(c) {
            let begin = at;
            while at < bytes.len() && is_word(bytes[at]) {
                at += 1;
            }
            let word: String = bytes[begin..at].iter().collect();
            let hashes = bytes[at..].iter().take_while(|c| **c == '#').count();
            let is_raw = matches!(word.as_str(), "r" | "br" | "cr") && bytes.get(at + hashes) == Some(&'"');
            if is_raw {
                let end = format!("\"{}", "#".repeat(hashes));
                at += hashes + 1;
                while at < bytes.len() && !starts(at, &end) {
                    at += 1;
                }
                at += end.len();
            } else {
                tokens.push(word);
            }
        } else if starts(at, "::") {
            tokens.push("::".to_owned());
            at += 2;
        } else {
            if !c.is_whitespace() {
                tokens.push(c.to_string());
            }
            at += 1;
        }
    }
    tokens
}

#[test]
fn a_circle_is_found_through_a_list_an_inline_path_and_a_parent() {
    let folder = std::env::temp_dir().join(format!("ringway-floors-{}", std::process::id()));
    let sources = folder.join("src");
    fs::create_dir_all(sources.join("c")).expect("a folder");
    let write = |name: &str, text: &str| fs::write(sources.join(name), text).expect("a file");
    write("lib.rs", "mod a; mod b; mod c; #[cfg(test)] mod t;\npub use a::A;");
    write("a.rs", "use crate::{b::{B, self}, c::d};\n#[cfg(test)]\nmod tests { use super::*; use crate::c; }");
    write("b.rs", "// use crate::a;\nfn f() -> &'static str { \"crate::a\" }");
    write("c/mod.rs", "mod d; mod e;");
    write("c/d.rs", "pub(in crate::c) struct D;");
    write("c/e.rs", "use super::d::D;");
    write("t.rs", "use crate::a; use crate::t;");
    let circles = || Graph::read(&sources).circles();
    assert_eq!(circles(), [], "tests, comments and texts do not count");
    write("b.rs", "fn f() { crate::a::f(); }");
    assert_eq!(circles(), [BTreeSet::from(["a".to_owned(), "b".to_owned()])]);
    write("b.rs", "");
    write("c/e.rs", "use super::Thing;");
    assert_eq!(circles(), [BTreeSet::from(["c".to_owned(), "c::e".to_owned()])]);
    write("c/e.rs", "mod own { use super::super::d; }");
    assert_eq!(circles(), []);
    fs::remove_dir_all(folder).expect("the folder goes");
}
