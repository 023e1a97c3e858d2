//! Every row of the fusion table: it fires where it should, gives what its nodes give one by one, and each of its checks
//! refuses a graph that breaks it.

mod chains;
mod delta_net;
mod norms;
mod snake;
mod sums;

use crate::devices::{all, unfused};
use crate::invariants;
use crate::numbers::{Nd, nmse};
use crate::rig::{Loaded, Rig, called};
use crate::support::{LIMITS, leaves};
use wgfuse::fusion::{Decline, Fusion, FusionId, Matcher, Mode, Sequence, TABLE};
use wgfuse::graph::DType;
use wgfuse::plan::{Plan, PlanOptions, plan};

const MODES: [Mode; 2] = [Mode::Structural, Mode::Full];
const X: [usize; 4] = [64, 4, 1, 1];
const ROW: [usize; 4] = [64, 1, 1, 1];

fn row(label: &str) -> &'static Fusion {
    TABLE.iter().find(|row| row.label() == label).unwrap_or_else(|| panic!("no row {label}"))
}

/// What the table says about a row at the first place where its operations follow one another.
fn verdict(rig: &Rig, label: &str, mode: Mode) -> Result<(), Decline> {
    let sequence = Sequence::new(&rig.graph, rig.graph.nodes(), mode);
    let row = row(label);
    let verdicts = (0..sequence.nodes().len()).map(|at| Matcher::default().try_row(row, &sequence, at));
    verdicts.into_iter().find(|verdict| *verdict != Err(Decline::Sequence)).unwrap_or(Err(Decline::Sequence))
}

fn planned(rig: &Rig) -> Plan {
    planned_with(rig, &PlanOptions::default())
}

fn planned_with(rig: &Rig, options: &PlanOptions) -> Plan {
    let plan = plan(&rig.graph, &leaves(&rig.graph), &LIMITS, options).expect("a plan");
    invariants::check(&rig.graph, &plan, &LIMITS);
    plan
}

fn count(plan: &Plan, label: &str) -> usize {
    plan.report.fused().find(|(row, _)| row.label() == label).map_or(0, |(_, count)| count)
}

/// The row is used once, and right.
fn fires(label: &str, rig: &Rig) {
    for mode in MODES {
        assert_eq!(verdict(rig, label, mode), Ok(()), "{label} {mode:?}");
    }
    fires_times(label, 1, rig);
}

/// The row is used so many times, and on every device gives what the reference and the nodes one by one give.
fn fires_times(label: &str, times: usize, rig: &Rig) {
    let plan = planned(rig);
    assert_eq!(count(&plan, label), times, "{label} is used:\n{}", plan.listing(&rig.graph));
    compare_on_all(label, rig, |what, loaded, _, _| {
        let plan = loaded.plan();
        assert_eq!(count(&plan, label), times, "{what}: {label} is used:\n{}", plan.listing(&rig.graph));
    });
}

/// Compares fused and unfused results of every device with the reference and with each other, then has `see` look at the
/// fused graph and both results, the fused ones first.
fn compare_on_all(what: &str, rig: &Rig, see: impl Fn(&str, &mut Loaded, &[Nd], &[Nd])) {
    let expected = rig.expected();
    for device in all() {
        let what = format!("{what} on {}", called(&device));
        let unfused = rig.run(&device, unfused()).unwrap_or_else(|error| panic!("{what}: {error}"));
        rig.compare(&format!("unfused {what}"), &unfused, &expected);
        let mut loaded = rig.load(&device, PlanOptions::default()).unwrap_or_else(|error| panic!("{what}: {error}"));
        let fused = loaded.step().unwrap_or_else(|error| panic!("{what}: {error}"));
        rig.compare(&format!("fused {what}"), &fused, &expected);
        for ((fused, unfused), (id, _)) in fused.iter().zip(&unfused).zip(&expected) {
            let limit = difference(rig.graph.tensor(*id).dtype());
            let error = nmse(&fused.all, &unfused.all);
            assert!(error <= limit, "{what}: fusion makes a difference of {error:e}");
        }
        see(&what, &mut loaded, &fused, &unfused);
    }
}

/// The NMSE that fusion may cause: one by one, each result is rounded to its type.
const fn difference(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 1e-9,
        DType::F16 => 2e-6,
        DType::BF16 => 1e-4,
        DType::I32 | DType::I64 | DType::Block(_) => 0.0,
    }
}

fn refuses_in(modes: &[Mode], label: &str, rig: &Rig, reason: Decline) {
    for &mode in modes {
        assert_eq!(verdict(rig, label, mode), Err(reason), "{label} {mode:?}");
    }
    for optimize in [true, false] {
        let plan = planned_with(rig, &PlanOptions { optimize, ..PlanOptions::default() });
        assert_eq!(count(&plan, label), 0, "{label} is not used:\n{}", plan.listing(&rig.graph));
        // In another order the operations may not follow one another any more.
        if !optimize && reason != Decline::Sequence {
            let told = plan.report.declines().any(|(row, decline, _)| row.label() == label && decline == reason);
            assert!(told, "{label}: the report says why:\n{}", plan.report);
        }
    }
}

fn refuses(label: &str, rig: &Rig, reason: Decline) {
    refuses_in(&MODES, label, rig, reason);
}

/// A graph in which a row's operations follow one another and only this check of the row fails.
fn near_miss(row: &Fusion, check: &str) -> Option<Rig> {
    match row.id {
        FusionId::NormMul | FusionId::NormMulAdd => norms::near_miss(row, check),
        FusionId::AddChain => sums::near_miss(row, check),
        FusionId::Snake => snake::near_miss(check),
        FusionId::GdnCache => delta_net::near_miss(check),
    }
}

#[test]
fn every_check_of_every_row_has_a_near_miss() {
    for (row, check) in TABLE.iter().flat_map(|row| row.checks.iter().map(move |check| (row, check))) {
        let label = row.label();
        let rig = near_miss(row, check.name).unwrap_or_else(|| panic!("{label} has no near miss for {}", check.name));
        // Some things are only known once every buffer's class is.
        let modes = if verdict(&rig, &label, Mode::Structural).is_ok() { &MODES[1..] } else { &MODES };
        refuses_in(modes, &label, &rig, Decline::Check(check.name));
    }
}
