//! The dummy models against recorded ones: metadata, tensors, and graphs node by node.

use super::{Model as Golden, dummies};
use serde_json::Value as Json;
use std::collections::{HashMap, HashSet};
use wgfuse::gguf::{Array, Value};
use wgfuse::graph::{Graph, LeafKind, TensorId};
use wgfuse::model::{Dummy, GraphInputs, Variant, dummy_tokens};

const VARIANTS: [&str; 8] = [
    "llama-dense",
    "llama-moe",
    "gpt2-dense",
    "phi2-dense",
    "falcon-dense",
    "gemma2-dense",
    "qwen2moe-moe",
    "qwen3next-moe",
];

fn dummy(variant: Variant, golden: &Golden) -> Dummy {
    let seed = golden.json["seed"].as_u64().unwrap();
    assert_eq!((golden.arch.as_str(), golden.json["moe"].as_bool()), (variant.arch, Some(variant.experts)));
    Dummy::new(variant.arch, variant.experts, seed).unwrap()
}

#[test]
fn the_table_has_these_models() {
    assert_eq!(Variant::all().map(|variant| variant.to_string()).collect::<Vec<_>>(), VARIANTS);
}

#[test]
fn metadata() {
    for (variant, golden) in dummies() {
        let dummy = dummy(variant, &golden);
        let expected = golden.json["kv"].as_object().unwrap();
        assert_eq!(dummy.metadata().len(), expected.len(), "{}", golden.name);
        let text = golden.text();
        let mut position = 0;
        for (key, value) in dummy.metadata().iter() {
            let at = text.find(&format!("\"{key}\":")).unwrap_or_else(|| panic!("{}: {key}", golden.name));
            assert!(at > position, "{}: {key} is out of order", golden.name);
            position = at;
            assert!(same(value, &expected[key]), "{}: {key} is {value}, not {}", golden.name, expected[key]);
        }
    }
}

/// Whether a value is the recorded one. Recorded floats have a point, integers have none.
fn same(value: &Value, json: &Json) -> bool {
    if let Some(array) = value.as_array() {
        let (items, expected) = (items(array), listed(json));
        return items.len() == expected.len() && items.iter().zip(&expected).all(|(item, json)| same(item, json));
    }
    if let Some(x) = value.as_f32() {
        let infinite = json.as_str() == Some("-inf") && x == f32::NEG_INFINITY;
        return infinite || json.as_f64().is_some_and(|y| json.is_f64() && x == y as f32);
    }
    if let Some(text) = value.as_str() {
        return json.as_str() == Some(text);
    }
    if let Some(flag) = value.as_bool() {
        return json.as_bool() == Some(flag);
    }
    value.as_i64().is_some() && value.as_i64() == json.as_i64()
}

/// The items of an array; integers of whatever width.
fn items(array: &Array) -> Vec<Value> {
    if let Array::F32(items) = array {
        return items.iter().map(|&x| x.into()).collect();
    }
    if let Array::String(items) = array {
        return items.iter().map(|text| text.as_str().into()).collect();
    }
    array.as_integers::<i64>().unwrap().into_iter().map(Value::I64).collect()
}

/// A recorded list without its abbreviations.
fn listed(json: &Json) -> Vec<Json> {
    if let Some(n) = json["strings"].as_u64() {
        return (0..n).map(|i| format!("tok_{i}").into()).collect();
    }
    if let Some(n) = json["n"].as_u64() {
        return vec![json["repeat"].clone(); n as usize];
    }
    json.as_array().unwrap().clone()
}

#[test]
fn tensors() {
    for (variant, golden) in dummies() {
        let dummy = dummy(variant, &golden);
        let ours: Vec<Json> =
            dummy.tensors().iter().map(|t| serde_json::json!([t.name, t.dtype.name(), t.ne])).collect();
        let theirs = golden.json["tensors"].as_array().unwrap();
        for (ours, theirs) in ours.iter().zip(theirs) {
            assert_eq!(ours, theirs, "{}", golden.name);
        }
        assert_eq!(ours.len(), theirs.len(), "{}", golden.name);
    }
}

#[test]
fn tokens_and_weights() {
    for (variant, golden) in dummies() {
        let seed = golden.json["seed"].as_u64().unwrap();
        for (stream, key, n) in [(1, "prefill", 32), (2, "decode", 16)] {
            assert_eq!(dummy_tokens(seed, stream, n, 128), golden.tokens(key), "{}", golden.name);
        }
        // The embedding's rows are the first thing that a graph computes.
        let nodes = golden.json["prefill"]["nodes"].as_array().unwrap();
        let rows = nodes.iter().find(|node| node["op"] == "GET_ROWS").unwrap();
        let token = golden.json["prefill"]["tokens"][0].as_u64().unwrap() as usize;
        let model = dummy(variant, &golden).model().unwrap();
        let data = model.data("token_embd.weight").unwrap();
        let row = &data[token * 256 * 4..][..4 * 4];
        let ours = row.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes));
        for (ours, theirs) in ours.zip(rows["first"].as_array().unwrap()) {
            assert!((f64::from(ours) - theirs.as_f64().unwrap()).abs() < 1e-6, "{}: {ours} {theirs}", golden.name);
        }
    }
}

#[test]
fn prefill_graphs() {
    for (variant, golden) in dummies() {
        compare(
            variant,
            &golden,
            "prefill",
            &GraphInputs { n_tokens: 32, n_kv: 256, n_outputs: 32, fresh: true, n_ctx: 256 },
        );
    }
}

#[test]
fn decode_graphs() {
    for (variant, golden) in dummies() {
        compare(
            variant,
            &golden,
            "decode",
            &GraphInputs { n_tokens: 1, n_kv: 256, n_outputs: 1, fresh: false, n_ctx: 256 },
        );
    }
}

/// Compares a graph with a recorded one, entry by entry, leaves included.
fn compare(variant: Variant, golden: &Golden, key: &str, batch: &GraphInputs) {
    let built = dummy(variant, golden).model().unwrap().build(batch).unwrap();
    let ours = entries(&built.graph);
    let (theirs, positions) = recorded(golden.json[key]["nodes"].as_array().unwrap());
    let place: HashMap<TensorId, usize> = ours.iter().enumerate().map(|(at, &id)| (id, at)).collect();
    for (at, (&id, &node)) in ours.iter().zip(&theirs).enumerate() {
        let context = || format!("{} {key}, entry {at}: {:?}\n{node}", golden.name, built.graph.tensor(id));
        assert_eq!(described(&built.graph, id, &place), expected(node, &positions), "{}", context());
    }
    assert_eq!(ours.len(), theirs.len(), "{} {key}", golden.name);
    assert_eq!(Some(&built.logits), ours.last());
}

/// The nodes in order of execution, each after those leaves that it is the first to read.
fn entries(graph: &Graph) -> Vec<TensorId> {
    let mut seen = HashSet::new();
    let mut entries = Vec::new();
    for &node in graph.nodes() {
        let leaves = graph.tensor(node).sources().filter(|&source| graph.tensor(source).leaf().is_some());
        entries.extend(leaves.filter(|&leaf| seen.insert(leaf)));
        entries.push(node);
    }
    entries
}

/// The recorded entries, a weight that stands there again left out, and where each recorded index went.
fn recorded(nodes: &[Json]) -> (Vec<&Json>, Vec<usize>) {
    let mut weights: HashMap<&str, usize> = HashMap::new();
    let (mut kept, mut positions) = (Vec::new(), Vec::new());
    for node in nodes {
        let weight = node["leaf"].as_str().filter(|_| node["flags"].is_null());
        let position = weight.and_then(|name| weights.get(name).copied()).unwrap_or(kept.len());
        if position == kept.len() {
            kept.push(node);
            weight.map(|name| weights.insert(name, position));
        }
        positions.push(position);
    }
    (kept, positions)
}

#[derive(Debug, PartialEq)]
struct Entry {
    what: String,
    dtype: String,
    ne: Vec<u64>,
    nb: Vec<u64>,
    flags: u64,
    src: Vec<Option<usize>>,
    view: Option<(usize, u64)>,
    params: Vec<u64>,
}

fn described(graph: &Graph, id: TensorId, place: &HashMap<TensorId, usize>) -> Entry {
    let t = graph.tensor(id);
    let what = match t.leaf() {
        // Windows have inputs of their own, which the recorded graphs do not name apart.
        Some(_) => t.name().trim_end_matches("_swa").to_owned(),
        None => t.kind().label().to_owned(),
    };
    let mut params: Vec<u64> = t.op().words().iter().map(|&word| word.into()).collect();
    while params.last() == Some(&0) {
        params.pop();
    }
    let mut src: Vec<Option<usize>> = t.source_slots().iter().map(|slot| slot.map(|id| place[&id])).collect();
    while src.last() == Some(&None) {
        src.pop();
    }
    Entry {
        what,
        dtype: t.dtype().to_string(),
        ne: t.ne().map(|n| n as u64).to_vec(),
        nb: t.nb().map(|n| n as u64).to_vec(),
        flags: u64::from(t.leaf() == Some(LeafKind::Input)) | if t.is_output() { 2 } else { 0 },
        src,
        view: t.view().map(|view| (place[&view.root], view.offset as u64)),
        params,
    }
}

fn expected(node: &Json, positions: &[usize]) -> Entry {
    let numbers = |key: &str| -> Vec<u64> {
        node[key].as_array().map_or(Vec::new(), |items| items.iter().map(|n| n.as_u64().unwrap()).collect())
    };
    let position = |index: &Json| index.as_u64().map(|index| positions[index as usize]);
    Entry {
        what: node["leaf"].as_str().or(node["op"].as_str()).unwrap().to_owned(),
        dtype: node["type"].as_str().unwrap().to_owned(),
        ne: numbers("ne"),
        nb: numbers("nb"),
        flags: node["flags"].as_u64().unwrap_or(0),
        src: node["src"].as_array().map_or(Vec::new(), |items| items.iter().map(position).collect()),
        view: position(&node["view_of"]).map(|root| (root, node["view_offs"].as_u64().unwrap_or(0))),
        params: numbers("params"),
    }
}
