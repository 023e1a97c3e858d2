//! Golden graphs: the builder rebuilds them exactly, and their plans fuse exactly as published.

use super::{Golden, Model, Refusal, directory, four, models};
use crate::invariants;
use crate::support::{LIMITS, leaves, plain};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use wgfuse::fusion::{FusionSet, Matcher, TABLE};
use wgfuse::plan::{Plan, PlanOptions, plan};

const PHASES: [&str; 2] = ["prefill", "decode"];

fn planned(golden: &Golden, options: &PlanOptions) -> Plan {
    let plan = plan(&golden.graph, &leaves(&golden.graph), &LIMITS, options).expect("a golden graph can be planned");
    assert!(plan.report.splits.is_empty(), "nothing had to be split:\n{}", plan.report);
    plan
}

fn published12() -> PlanOptions {
    PlanOptions { matcher: Matcher::new(FusionSet::Published12), ..PlanOptions::default() }
}

/// Runs `check` on every graph of every model that the crate's operations can express; gives how many models those are.
fn for_each_graph(directory: &Path, mut check: impl FnMut(&Model, &str, &Golden)) -> usize {
    let models = models(directory);
    let mut unsupported = BTreeMap::new();
    for model in &models {
        for phase in PHASES {
            match model.graph(phase) {
                Ok(golden) => check(model, phase, &golden),
                Err(Refusal::Unsupported(what)) => {
                    unsupported.insert(&model.name, what);
                }
                Err(Refusal::Wrong(what)) => panic!("{} {phase}: {what}", model.name),
            }
        }
    }
    eprintln!("{} of {} models; the others need {unsupported:?}", models.len() - unsupported.len(), models.len());
    models.len() - unsupported.len()
}

#[test]
fn graphs_are_rebuilt_exactly() {
    let Some(directory) = directory() else { return };
    let rebuilt = for_each_graph(&directory, |model, phase, golden| {
        let at = |entry: usize| format!("{} {phase}, entry {entry}", model.name);
        let nodes: Vec<_> = golden.entries.iter().filter(|(_, e)| e["op"].is_string()).map(|(id, _)| *id).collect();
        assert_eq!(golden.graph.nodes(), nodes, "{} {phase}: order", model.name);
        for (index, (id, entry)) in golden.entries.iter().enumerate() {
            let tensor = golden.graph.tensor(*id);
            assert_eq!((tensor.ne(), tensor.nb()), (four(&entry["ne"]), four(&entry["nb"])), "{}", at(index));
            assert_eq!(tensor.dtype().name(), entry["type"], "{}", at(index));
            let root = entry["view_of"].as_u64().map(|root| golden.entries[root as usize].0);
            let is_cast = entry["op"] == "CPY" && root.is_none();
            if !is_cast {
                assert_eq!(tensor.view().map(|view| view.root), root, "{}", at(index));
            }
            assert_eq!(tensor.view().map_or(0, |view| view.offset as u64), entry["view_offs"].as_u64().unwrap_or(0));
            if tensor.leaf().is_none() {
                let words = tensor.op().words();
                assert_eq!(without_hints(&entry["op"], trimmed(&words)), expected_words(entry), "{}", at(index));
            }
        }
    });
    assert!(rebuilt >= 90, "only {rebuilt} models were rebuilt");
}

/// Parameters without the zeros at their end.
fn trimmed(words: &[u32]) -> Vec<u32> {
    let length = words.iter().rposition(|&word| word != 0).map_or(0, |last| last + 1);
    words[..length].to_vec()
}

fn expected_words(entry: &Value) -> Vec<u32> {
    let words = entry["params"].as_array().map_or(&[][..], Vec::as_slice);
    let words: Vec<u32> = words.iter().map(|word| word.as_i64().expect("a word") as u32).collect();
    without_hints(&entry["op"], words)
}

/// Words that only hint at how to compute, or repeat the operation's name, are not the operation's.
fn without_hints(op: &Value, words: Vec<u32>) -> Vec<u32> {
    match op.as_str() {
        Some("FLASH_ATTN_EXT") => trimmed(&words[..words.len().min(4)]),
        _ => trimmed(&words),
    }
}

type Row = (String, bool, String);

/// The rows of a baseline file, by architecture, whether it has experts, and label.
fn baseline(path: &Path) -> BTreeMap<Row, Vec<usize>> {
    let text = std::fs::read_to_string(path).expect("a readable baseline");
    let mut rows: BTreeMap<Row, Vec<usize>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [arch, moe, "any", label, count] = fields[..] else { panic!("unexpected line {line}") };
        let row = (arch.to_owned(), moe == "1", label.to_owned());
        rows.entry(row).or_default().push(count.parse().expect("a count"));
    }
    rows
}

fn counts(plan: &Plan) -> BTreeMap<String, usize> {
    plan.report.fused().map(|(row, count)| (row.label(), count)).collect()
}

/// The counts of every graph; both phases of a model agree.
fn fused(directory: &Path, options: &PlanOptions) -> BTreeMap<String, (String, BTreeMap<String, usize>)> {
    let mut models = BTreeMap::new();
    for_each_graph(directory, |model, phase, golden| {
        let counts = counts(&planned(golden, options));
        let entry = models.entry(model.name.clone()).or_insert_with(|| (model.arch.clone(), counts.clone()));
        assert_eq!(entry.1, counts, "{} {phase}: prefill and decode agree", model.name);
    });
    models
}

/// How many rows of the baseline the models do not reproduce, and how many they should.
fn mismatches(directory: &Path, options: &PlanOptions) -> (Vec<String>, usize) {
    let baseline = baseline(&directory.join("../baselines/table12.csv"));
    let mut found: BTreeMap<Row, Vec<usize>> = BTreeMap::new();
    let mut archs: BTreeMap<String, usize> = BTreeMap::new();
    for (arch, counts) in fused(directory, options).into_values() {
        *archs.entry(arch.clone()).or_default() += 1;
        for (label, count) in counts {
            found.entry((arch.clone(), arch.contains("moe"), label)).or_default().push(count);
        }
    }
    let variants = models(directory).into_iter().fold(BTreeMap::new(), |mut all, model| {
        *all.entry(model.arch).or_insert(0usize) += 1;
        all
    });
    // An architecture is judged when all its variants were built: its rows do not say which variant they are of.
    let judged = |(arch, _, _): &&Row| archs.get(arch) == variants.get(arch);
    let rows: Vec<&Row> = baseline.keys().chain(found.keys()).filter(judged).collect();
    let wrong = rows.iter().filter(|row| {
        let sorted = |rows: &BTreeMap<Row, Vec<usize>>| {
            let mut counts = rows.get(**row).cloned().unwrap_or_default();
            counts.sort_unstable();
            counts
        };
        sorted(&baseline) != sorted(&found)
    });
    let wrong = wrong.map(|row| format!("{row:?}: {:?}, published {:?}", found.get(*row), baseline.get(*row)));
    let mut wrong: Vec<String> = wrong.collect();
    wrong.sort();
    wrong.dedup();
    let published = baseline.iter().filter(|(row, _)| judged(row)).map(|(_, counts)| counts.len()).sum();
    (wrong, published)
}

#[test]
fn fusion_counts_are_the_published_ones() {
    let Some(directory) = directory() else { return };
    let (wrong, published) = mismatches(&directory, &published12());
    assert!(wrong.is_empty(), "{} of {published} rows differ:\n{}", wrong.len(), wrong.join("\n"));
    eprintln!("all {published} rows");
    assert!(published >= 120, "only {published} rows were compared");
}

#[test]
fn golden_plans_hold_what_every_plan_must() {
    let Some(directory) = directory() else { return };
    for_each_graph(&directory, |_, _, golden| {
        for options in [published12(), PlanOptions { optimize: false, ..published12() }, plain()] {
            invariants::check(&golden.graph, &planned(golden, &options), &LIMITS);
        }
    });
}

/// The comparison would notice a lost row: without any one that a baseline has, or without the order, it fails.
#[test]
fn a_lost_row_is_noticed() {
    let Some(directory) = directory() else { return };
    let all = fused(&directory, &published12());
    for row in &TABLE {
        let label = row.label();
        let used = all.values().any(|(_, counts)| counts.contains_key(&label));
        let without =
            PlanOptions { matcher: Matcher::new(FusionSet::Published12).without_row(&label), ..published12() };
        let (wrong, _) = mismatches(&directory, &without);
        assert_eq!(!wrong.is_empty(), used, "{label}");
    }
    let (wrong, _) = mismatches(&directory, &PlanOptions { optimize: false, ..published12() });
    assert!(!wrong.is_empty(), "the counts depend on the order");
}
