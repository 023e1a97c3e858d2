//! Attention.

use crate::numbers::indices;
use crate::rig::{DENSE_ROWS, FLOATS, Form, Rig};
use wgfuse::graph::{DType, FlashAttn, LeafKind, Precision, TensorId};

const F16: DType = DType::F16;
const F32: DType = DType::F32;
const INPUT: LeafKind = LeafKind::Input;
const HIDDEN: f64 = f64::NEG_INFINITY;

/// One call's shapes and options; of pairs, the first is the queries', the second the keys' and values'.
#[derive(Clone, Copy)]
struct Attention {
    /// Elements of keys and of values.
    d: [usize; 2],
    tokens: usize,
    cells: usize,
    heads: [usize; 2],
    batch: [usize; 2],
    /// Rows, heads and batch of the mask.
    mask: Option<[usize; 3]>,
    sinks: bool,
    max_bias: f32,
    cap: f32,
    scale: f32,
}

const PLAIN: Attention = Attention {
    d: [24, 24],
    tokens: 5,
    cells: 11,
    heads: [6, 6],
    batch: [1, 1],
    mask: None,
    sinks: false,
    max_bias: 0.0,
    cap: 0.0,
    scale: 0.6,
};

impl Attention {
    fn add(self, rig: &mut Rig, dtype: DType, [q_form, k_form, v_form]: [Form; 3]) {
        let Self { d: [d, dv], tokens, cells, heads: [heads, heads_kv], batch: [batch, batch_kv], .. } = self;
        let q = rig.source(q_form, F32, [d, tokens, heads, batch]);
        let k = rig.source(k_form, dtype, [d, cells, heads_kv, batch_kv]);
        let v = rig.source(v_form, dtype, [dv, cells, heads_kv, batch_kv]);
        let mask = self.mask.map(|[rows, heads, batch]| {
            let mask = rig.leaf(INPUT, F16, [cells, rows, heads, batch]);
            let hidden = indices([cells, rows, heads, batch]).map(|[cell, token, head, _]| match (token, head % 2) {
                // The first token of each head sees nothing, others see the past, or all but every third cell.
                (0, _) => true,
                (_, 0) => cell > token + 2 && cells < 20,
                _ => cell % 3 == 1,
            });
            let values = rig.contents(mask).into_iter().zip(hidden).map(|(x, hidden)| if hidden { HIDDEN } else { x });
            let values = values.collect();
            rig.give(mask, values);
            mask
        });
        let sinks = self.sinks.then(|| rig.weight([heads, 1, 1, 1]));
        let (scale, max_bias, logit_softcap) = (self.scale, self.max_bias, self.cap);
        let attn = FlashAttn { scale, max_bias, logit_softcap, precision: Precision::F32 };
        let out = rig.graph.flash_attn([q, k, v], mask, sinks, attn).unwrap();
        rig.output(out);
    }
}

#[test]
fn options_and_forms() {
    let masked = Attention { mask: Some([8, 1, 1]), ..PLAIN };
    for dtype in FLOATS {
        let mut rig = Rig::default();
        for form in DENSE_ROWS {
            for case in [
                PLAIN,
                masked,
                Attention { heads: [6, 2], d: [24, 7], ..masked },
                Attention { batch: [4, 2], mask: Some([5, 3, 2]), ..masked },
                Attention { max_bias: 8.0, ..masked },
                Attention { cap: 0.5, ..masked },
                Attention { sinks: true, max_bias: 4.0, cap: 2.0, heads: [6, 3], ..masked },
                Attention { tokens: 1, heads: [6, 1], ..PLAIN },
                Attention { cells: 0, ..PLAIN },
            ] {
                case.add(&mut rig, dtype, [form, form, Form::Swapped]);
            }
        }
        rig.check();
    }
}

#[test]
fn shapes() {
    let shape = |d, tokens, heads, batch, cells| Attention { d, tokens, heads, batch, cells, scale: 0.7, ..PLAIN };
    let mut rig = Rig::default();
    for shape in [
        shape([4, 4], 1, [1, 1], [1, 1], 1),
        shape([64, 64], 1, [6, 2], [2, 1], 33),
        shape([40, 24], 3, [4, 4], [1, 1], 70),
        shape([128, 128], 5, [8, 2], [2, 2], 300),
        shape([80, 80], 9, [3, 1], [1, 1], 129),
        shape([576, 512], 2, [4, 1], [1, 1], 40),
        shape([72, 200], 4, [2, 2], [1, 1], 600),
    ] {
        let rows = shape.tokens + 1;
        let for_all = Some([rows, 1, shape.batch[0]]);
        let for_each = Some([rows, shape.heads[0], shape.batch[0]]);
        for (dtype, form, case) in [
            (F32, Form::Dense, shape),
            (F32, Form::Swapped, Attention { mask: for_all, ..shape }),
            (F16, Form::Swapped, Attention { mask: for_each, sinks: true, max_bias: 8.0, ..shape }),
            (F16, Form::Padded, Attention { mask: for_all, cap: 2.0, ..shape }),
            (DType::BF16, Form::Padded, Attention { sinks: true, ..shape }),
        ] {
            case.add(&mut rig, dtype, [Form::Swapped, form, form]);
        }
    }
    rig.check();
}

const DEFAULT: FlashAttn = FlashAttn { scale: 1.0, max_bias: 0.0, logit_softcap: 0.0, precision: Precision::Default };

/// What a cache holds in masked cells does not matter.
#[test]
fn masked_cells_are_not_read() {
    let mut rig = Rig::default();
    let q = rig.given(INPUT, F32, [1, 1, 1, 1], &[1.0]);
    let [k, v] = [(); 2].map(|()| rig.given(INPUT, F16, [1, 3, 1, 1], &[0.5, f64::NAN, f64::INFINITY]));
    let mask = rig.given(INPUT, F16, [3, 1, 1, 1], &[0.0, HIDDEN, HIDDEN]);
    let out = rig.graph.flash_attn([q, k, v], Some(mask), None, DEFAULT).unwrap();
    rig.output(out);
    assert_eq!(rig.expected()[0].1.all, [0.5]);

    let (cells, tokens) = (150, 3);
    let hides = |cell: usize| cell % 5 == 2 || cell > 130;
    let q = rig.input([32, tokens, 2, 1]);
    let [k, v] = [(); 2].map(|()| {
        let kv = rig.leaf(INPUT, F16, [32, cells, 1, 1]);
        let values = rig.contents(kv).into_iter().enumerate();
        let values = values.map(|(i, x)| if hides(i / 32) { f64::NAN } else { x }).collect();
        rig.give(kv, values);
        kv
    });
    let mask: Vec<f64> = (0..cells * tokens).map(|i| if hides(i % cells) { HIDDEN } else { 0.0 }).collect();
    let mask = rig.given(INPUT, F16, [cells, tokens, 1, 1], &mask);
    let attn = FlashAttn { scale: 0.5, ..DEFAULT };
    let out = rig.graph.flash_attn([q, k, v], Some(mask), None, attn).unwrap();
    rig.output(out);
    assert!(rig.expected()[1].1.all.iter().all(|x| x.is_finite()));
    rig.check();
}

#[test]
fn nothing_to_attend_to_gives_zeros() {
    let mut rig = Rig::default();
    let q = rig.input([32, 6, 2, 1]);
    let attend = |rig: &mut Rig, cells: usize, mask: Option<TensorId>| {
        let kv = rig.leaf(INPUT, F16, [32, cells, 2, 1]);
        let out = rig.graph.flash_attn([q, kv, kv], mask, None, DEFAULT).unwrap();
        rig.output(out);
    };
    let mask = rig.given(INPUT, F16, [200, 6, 1, 1], &[HIDDEN; 1200]);
    attend(&mut rig, 200, Some(mask));
    attend(&mut rig, 0, None);
    assert!(rig.expected().iter().all(|(_, nd)| nd.all.iter().all(|&x| x == 0.0)));
    rig.check();
}
