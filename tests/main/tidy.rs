//! Rules about the sources themselves: what ARCHITECTURE.md says about folders, and where things may be named.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use wgfuse::graph::OpKind;

/// A source file: its path from the crate's root, and its text.
struct Source {
    path: String,
    text: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file under `folder` with this ending.
fn files(folder: &str, ending: &str) -> Vec<Source> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == ending) {
                found.push(Source { path: relative(&path), text: fs::read_to_string(&path).expect("text") });
            }
        }
    }
    assert!(!found.is_empty(), "{folder} has no .{ending} files");
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn relative(path: &Path) -> String {
    let parts = path.strip_prefix(root()).expect("a file of the crate").iter();
    parts.map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/")
}

impl Source {
    /// The folder of `src/` that it is in; the crate's root files have none.
    fn folder(&self) -> Option<&str> {
        let (folder, _) = self.path.strip_prefix("src/")?.split_once('/')?;
        Some(folder)
    }

    /// The lines that are compiled into the library: no comments, no unit tests; with their numbers.
    fn code(&self) -> Vec<(usize, &str)> {
        let lines: Vec<&str> = self.text.lines().collect();
        let is_tests = |at: &usize| lines[*at].trim() == "#[cfg(test)]" && lines.get(at + 1) == Some(&"mod tests {");
        let end = (0..lines.len()).find(is_tests).unwrap_or(lines.len());
        let is_all_tests = self.path.ends_with("/tests.rs") || self.path.contains("/tests/");
        let end = if is_all_tests { 0 } else { end };
        let code = (1..).zip(&lines[..end]).filter(|(_, line)| !line.trim_start().starts_with("//"));
        code.map(|(number, line)| (number, line.split(" // ").next().unwrap_or(line))).collect()
    }

    /// The code in one piece, without spaces and line ends.
    fn dense_code(&self) -> String {
        self.code().into_iter().flat_map(|(_, line)| line.chars()).filter(|c| !c.is_whitespace()).collect()
    }
}

/// The words of a line, as identifiers are split.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

fn report(rule: &str, breaches: &[String]) {
    assert!(breaches.is_empty(), "{rule}:\n{}", breaches.join("\n"));
}

#[test]
fn every_file_says_what_it_is() {
    let sources = ["src", "tests/main", "examples"].into_iter().flat_map(|folder| files(folder, "rs"));
    // The crate's own page is its README.
    let says = |source: &Source| ["//! ", "#![doc = include_str!("].iter().any(|start| source.text.starts_with(start));
    let silent: Vec<_> = sources.filter(|source| !says(source)).map(|source| source.path).collect();
    report("a file starts with what it is, in a `//!` comment", &silent);
}

#[test]
fn wgpu_is_named_in_gpu_alone() {
    let mut breaches = Vec::new();
    for source in files("src", "rs").iter().filter(|source| source.folder() != Some("gpu")) {
        let named = source.code().into_iter().filter(|(_, line)| words(line).any(|word| word == "wgpu"));
        breaches.extend(named.map(|(number, line)| format!("{}:{number}: {line}", source.path)));
    }
    report("only src/gpu names wgpu", &breaches);
}

/// The architectures of the table.
fn architectures() -> Vec<String> {
    let table = fs::read_to_string(root().join("src/model/arch.rs")).expect("the table of architectures");
    let names = table.lines().filter_map(|line| line.trim().strip_prefix("name: \"")?.strip_suffix("\","));
    let names: Vec<_> = names.map(str::to_owned).collect();
    assert!(names.len() >= 7, "the table of architectures is not read as it is written: {names:?}");
    names
}

#[test]
fn architectures_are_named_in_their_table_alone() {
    let names = architectures();
    let mut breaches = Vec::new();
    for source in files("src", "rs").iter().filter(|source| source.path != "src/model/arch.rs") {
        for (number, line) in source.code() {
            let named = words(line).find(|word| names.iter().any(|name| name.eq_ignore_ascii_case(word)));
            breaches.extend(named.map(|name| format!("{}:{number}: {name}", source.path)));
        }
    }
    for source in files("wgsl", "wgsl") {
        let named = words(&source.text).find(|word| names.iter().any(|name| name.eq_ignore_ascii_case(word)));
        breaches.extend(named.map(|name| format!("{}: {name}", source.path)));
    }
    report("only src/model/arch.rs names architectures", &breaches);
}

/// Every innermost pair of brackets in a text.
fn brackets(text: &str) -> impl Iterator<Item = &str> {
    text.split('[').skip(1).filter_map(|rest| rest.split_once(']')).map(|(inside, _)| inside)
}

/// Whether the list names several kinds of operations and nothing else.
fn is_sequence(list: &str) -> bool {
    let kinds: BTreeSet<String> = OpKind::ALL.iter().map(|kind| format!("{kind:?}")).collect();
    let items: Vec<&str> = list.trim_end_matches(',').split(',').collect();
    let is_kind = |item: &&str| kinds.contains(item.trim_start_matches("OpKind::").trim_start_matches("Op::"));
    items.len() > 1 && items.iter().all(is_kind)
}

/// Whether the text in quotes is a label of several operations.
fn has_label(text: &str) -> bool {
    let labels: BTreeSet<&str> = OpKind::ALL.iter().map(|kind| kind.label()).collect();
    text.split('"').any(|part| part.contains('+') && part.split('+').all(|label| labels.contains(label)))
}

#[test]
fn sequences_of_operations_stand_in_the_fusion_table_alone() {
    assert!(is_sequence("RmsNorm,Mul") && is_sequence("OpKind::Add,OpKind::Add,") && !is_sequence("Add"));
    assert!(has_label("x(\"RMS_NORM+MUL\")") && !has_label("\"+\"") && !has_label("\"MUL\""));
    let table = "src/fusion/table.rs";
    let mut breaches = Vec::new();
    for source in files("src", "rs") {
        let code = source.dense_code();
        let named = brackets(&code).any(is_sequence) || has_label(&code);
        if source.path == table {
            assert!(named, "the fusion table is not read as it is written");
        } else if named {
            breaches.push(source.path);
        }
    }
    report("only src/fusion/table.rs names sequences of operations", &breaches);
}

#[test]
fn every_kernel_source_is_registered() {
    let compose = fs::read_to_string(root().join("src/gpu/compose.rs")).expect("the list of sources");
    let (_, list) = compose.split_once("= sources![").expect("the list of sources");
    let (list, _) = list.split_once("];").expect("the end of the list");
    let registered: Vec<String> = list.split('"').skip(1).step_by(2).map(|name| format!("wgsl/{name}.wgsl")).collect();
    let present: Vec<String> = files("wgsl", "wgsl").into_iter().map(|source| source.path).collect();
    assert_eq!(registered, present, "the list in src/gpu/compose.rs, in alphabetical order, is what lies in wgsl/");
}

/// What each folder of `src/` may use, as ARCHITECTURE.md says.
fn allowed() -> Vec<(String, BTreeSet<String>)> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let mut rows: Vec<(String, BTreeSet<String>)> = Vec::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let &["", folder, _, uses, ""] = cells.as_slice() else { continue };
        let Some(folder) = folder.strip_prefix("`src/").and_then(|folder| folder.strip_suffix('`')) else { continue };
        let above: BTreeSet<String> = rows.iter().map(|(folder, _)| folder.clone()).collect();
        let named = || words(uses).map(str::to_owned).collect::<BTreeSet<_>>().intersection(&above).cloned().collect();
        let uses = if uses == "all above" { above.clone() } else { named() };
        rows.push((folder.to_owned(), uses));
    }
    rows
}

#[test]
fn folders_use_what_their_row_names() {
    let rows = allowed();
    let folders: BTreeSet<String> = rows.iter().map(|(folder, _)| folder.clone()).collect();
    let present: BTreeSet<String> = fs::read_dir(root().join("src"))
        .expect("src")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path: &PathBuf| path.is_dir())
        .map(|path| relative(&path).replace("src/", ""))
        .collect();
    assert_eq!(folders, present, "ARCHITECTURE.md has a row for every folder of src/");
    let mut breaches = Vec::new();
    for source in files("src", "rs") {
        let Some((folder, uses)) = rows.iter().find(|(folder, _)| Some(folder.as_str()) == source.folder()) else {
            continue;
        };
        let code = source.dense_code();
        let used: BTreeSet<&str> = code.split("crate::").skip(1).filter_map(|rest| words(rest).next()).collect();
        let breach = |used: &&str| folders.contains(*used) && *used != folder && !uses.contains(*used);
        breaches.extend(used.iter().filter(|used| breach(used)).map(|used| format!("{} uses {used}", source.path)));
        assert!(
            !code.contains("usecrate::{"),
            "{}: one `use crate::` a folder, so that this test sees it",
            source.path
        );
    }
    report("a folder uses only what its row in ARCHITECTURE.md names", &breaches);
}
