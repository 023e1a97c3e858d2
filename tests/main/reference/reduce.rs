//! Sums, counts, picks and norms, from their definitions.

use super::{by_row, normalised, sorted};
use crate::numbers::{Nd, indices};
use std::collections::BTreeMap;
use wgfuse::graph::SortOrder;

fn rows(a: &Nd) -> impl Iterator<Item = Vec<f64>> {
    a.all.chunks(a.ne[0].max(1)).map(<[f64]>::to_vec)
}

pub fn mean(a: &Nd, ne: [usize; 4]) -> Nd {
    Nd { ne, all: rows(a).map(|row| row.iter().sum::<f64>() / row.len() as f64).collect() }
}

pub fn cumsum(a: &Nd) -> Nd {
    by_row(a, |row, _| {
        row.iter()
            .scan(0.0, |sum, x| {
                *sum += x;
                Some(*sum)
            })
            .collect()
    })
}

pub fn count_equal(a: &Nd, b: &Nd) -> Nd {
    let count = a.all.iter().zip(&b.all).filter(|(a, b)| a == b).count();
    Nd { ne: [1; 4], all: vec![count as f64] }
}

pub fn argmax(a: &Nd, ne: [usize; 4]) -> Nd {
    Nd { ne, all: rows(a).map(|row| sorted(&row, SortOrder::Descending)[0]).collect() }
}

pub fn top_k(a: &Nd, k: usize, ne: [usize; 4]) -> Nd {
    Nd { ne, all: rows(a).flat_map(|row| sorted(&row, SortOrder::Descending)[..k].to_vec()).collect() }
}

pub fn l2_norm(a: &Nd, eps: f64) -> Nd {
    by_row(a, |row, _| {
        let length = row.iter().map(|x| x * x).sum::<f64>().sqrt();
        row.iter().map(|x| x / length.max(eps)).collect()
    })
}

/// Group by group: which group a channel is in says everything else.
pub fn group_norm(a: &Nd, groups: usize, eps: f64) -> Nd {
    let size = a.ne[2].div_ceil(groups);
    let mut members: BTreeMap<[usize; 2], Vec<usize>> = BTreeMap::new();
    for (place, [_, _, channel, batch]) in indices(a.ne).enumerate() {
        members.entry([batch, channel / size]).or_default().push(place);
    }
    let mut result = Nd { ne: a.ne, all: vec![f64::NAN; a.all.len()] };
    for places in members.into_values() {
        let values: Vec<f64> = places.iter().map(|&place| a.all[place]).collect();
        places.iter().zip(normalised(&values, true, eps)).for_each(|(&place, x)| result.all[place] = x);
    }
    result
}
