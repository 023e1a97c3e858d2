//! Baselines: how often each pattern fires for each model, as a CSV file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::path::Path;

/// Which graph a count is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Both graphs, which agree.
    Any,
    /// One token at a time.
    Decode,
    /// The whole prompt as one batch.
    Prefill,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Any => "any",
            Self::Decode => "decode",
            Self::Prefill => "prefill",
        })
    }
}

/// A model: its architecture, and which of its variants.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// Architecture.
    pub arch: String,
    /// `dense` or `moe`.
    pub variant: String,
}

/// What is counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The model.
    pub subject: Subject,
    /// The pattern: its operations joined by `+`.
    pub label: String,
    /// The graph.
    pub mode: Mode,
}

/// Counts per graph.
pub type Counts = BTreeMap<Key, u64>;

const HEADER: [&str; 6] = ["arch", "moe", "variant", "mode", "label", "count"];

/// Reads a baseline; lines that start with `#` are comments.
pub fn read(path: &Path) -> Result<Counts, String> {
    let error = |line: Option<u64>, what: String| match line {
        Some(line) => format!("{}:{line}: {what}", path.display()),
        None => format!("{}: {what}", path.display()),
    };
    let mut reader = csv::ReaderBuilder::new()
        .comment(Some(b'#'))
        .has_headers(false)
        .trim(csv::Trim::All)
        .from_path(path)
        .map_err(|e| error(None, e.to_string()))?;
    let mut counts = Counts::new();
    for record in reader.records() {
        let record = record.map_err(|e| error(None, e.to_string()))?;
        let line = record.position().map(csv::Position::line);
        let fields: Vec<&str> = record.iter().collect();
        let [arch, moe, variant, mode, label, count] = fields[..] else {
            return Err(error(line, format!("{} fields, expected {}", fields.len(), HEADER.join(","))));
        };
        if moe != named_moe(arch) {
            return Err(error(line, format!("moe is `{moe}`, expected {} for `{arch}`", named_moe(arch))));
        }
        let mode = match mode {
            "any" => Mode::Any,
            "decode" => Mode::Decode,
            "prefill" => Mode::Prefill,
            other => return Err(error(line, format!("mode is `{other}`, expected any, decode or prefill"))),
        };
        let subject = Subject { arch: arch.to_owned(), variant: variant.to_owned() };
        let count = count.parse().map_err(|_| error(line, format!("count is `{count}`, expected a number")))?;
        if counts.insert(Key { subject, label: label.to_owned(), mode }, count).is_some() {
            return Err(error(line, "the row stands twice".to_owned()));
        }
    }
    Ok(counts)
}

/// The published files call an architecture a mixture of experts when its name says so, not when the model is one.
fn named_moe(arch: &str) -> &'static str {
    if arch.contains("moe") { "1" } else { "0" }
}

/// The text of a baseline file.
pub fn render(counts: &Counts, set: &str) -> String {
    let mut text = format!("# fusions per graph with the table `{set}`\n");
    let _ =
        writeln!(text, "# {:<18},{:<4},{:<8},{:<8},{:<28},{:>7}", "arch", "moe", "variant", "mode", "label", "count");
    for (Key { subject, label, mode }, count) in counts {
        let moe = named_moe(&subject.arch);
        let _ = writeln!(text, "{:<20},{moe:<4},{:<8},{mode:<8},{label:<28},{count:>7}", subject.arch, subject.variant);
    }
    text
}

/// How a row stands to the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The counts agree.
    Same,
    /// The baseline has another count.
    Differs {
        /// The baseline's count.
        expected: u64,
    },
    /// The baseline has no such row.
    Extra,
    /// The run has no such row.
    Missing {
        /// The baseline's count.
        expected: u64,
    },
}

/// Compares a run with a baseline, row by row. With `only`, rows of other models are left out.
pub fn compare(expected: &Counts, found: &Counts, only: Option<&Subject>) -> BTreeMap<Key, Verdict> {
    let keys: BTreeSet<&Key> = expected.keys().chain(found.keys()).collect();
    keys.into_iter()
        .filter(|key| only.is_none_or(|subject| key.subject == *subject))
        .map(|key| {
            let verdict = match (expected.get(key), found.get(key)) {
                (Some(a), Some(b)) if a == b => Verdict::Same,
                (Some(&expected), Some(_)) => Verdict::Differs { expected },
                (Some(&expected), None) => Verdict::Missing { expected },
                (None, _) => Verdict::Extra,
            };
            (key.clone(), verdict)
        })
        .collect()
}

/// Merges the counts of both graphs: one `any` row where they agree, a row each where they do not.
pub fn merge(subject: &Subject, prefill: &BTreeMap<String, u64>, decode: &BTreeMap<String, u64>) -> Counts {
    let labels: BTreeSet<&String> = prefill.keys().chain(decode.keys()).collect();
    let mut counts = Counts::new();
    for label in labels {
        let key = |mode| Key { subject: subject.clone(), label: label.clone(), mode };
        match (prefill.get(label), decode.get(label)) {
            (Some(&a), Some(&b)) if a == b => {
                counts.insert(key(Mode::Any), a);
            }
            (a, b) => {
                counts.extend(a.map(|&count| (key(Mode::Prefill), count)));
                counts.extend(b.map(|&count| (key(Mode::Decode), count)));
            }
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject() -> Subject {
        Subject { arch: "qwen2moe".to_owned(), variant: "moe".to_owned() }
    }

    fn counts(rows: &[(&str, Mode, u64)]) -> Counts {
        rows.iter()
            .map(|&(label, mode, count)| (Key { subject: subject(), label: label.to_owned(), mode }, count))
            .collect()
    }

    #[test]
    fn a_file_reads_back_as_it_was_written() {
        let rows = counts(&[("ADD+ADD", Mode::Any, 2), ("NORM+MUL", Mode::Prefill, 5), ("NORM+MUL", Mode::Decode, 4)]);
        let path = std::env::temp_dir().join(format!("wgfuse-baseline-{}.csv", std::process::id()));
        std::fs::write(&path, render(&rows, "published12")).unwrap();
        assert_eq!(read(&path), Ok(rows));
        std::fs::write(&path, "qwen2moe,1,moe,any,ADD+ADD,two\n").unwrap();
        assert!(read(&path).unwrap_err().contains(":1: count is `two`"));
        std::fs::write(&path, "a,0,dense,any,X,1\na,0,dense,any,X,1\n").unwrap();
        assert!(read(&path).unwrap_err().contains("twice"));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn agreeing_modes_merge_and_others_stay_apart() {
        let prefill = BTreeMap::from([("A".to_owned(), 1), ("B".to_owned(), 2), ("C".to_owned(), 3)]);
        let decode = BTreeMap::from([("A".to_owned(), 1), ("B".to_owned(), 4)]);
        let expected =
            counts(&[("A", Mode::Any, 1), ("B", Mode::Prefill, 2), ("B", Mode::Decode, 4), ("C", Mode::Prefill, 3)]);
        assert_eq!(merge(&subject(), &prefill, &decode), expected);
    }

    #[test]
    fn every_difference_is_seen() {
        let expected = counts(&[("A", Mode::Any, 1), ("B", Mode::Any, 2), ("C", Mode::Any, 3)]);
        let found = counts(&[("A", Mode::Any, 1), ("B", Mode::Any, 9), ("D", Mode::Any, 4)]);
        let verdicts: Vec<Verdict> = compare(&expected, &found, None).into_values().collect();
        let differs =
            [Verdict::Same, Verdict::Differs { expected: 2 }, Verdict::Missing { expected: 3 }, Verdict::Extra];
        assert_eq!(verdicts, differs);
        let other = Subject { arch: "llama".to_owned(), variant: "dense".to_owned() };
        assert!(compare(&expected, &found, Some(&other)).is_empty());
    }
}
