//! What `test` and `support` print.

use crate::builder::Builder;
use crate::cases::Case;
use crate::check::{Outcome, judge_all, refusal};
use crate::{Args, Output};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use wgfuse::cpu::CpuDevice;
use wgfuse::device::Device;
use wgfuse::fusion::FusionConfig;
use wgfuse::graph::DType;

/// A line of comma-separated values; a field with a comma or a quote is quoted.
pub fn csv(fields: &[&str]) -> String {
    let quoted = |field: &&str| {
        if field.contains([',', '"', '\n']) {
            format!("\"{}\"", field.replace('"', "\"\""))
        } else {
            (*field).to_owned()
        }
    };
    fields.iter().map(quoted).collect::<Vec<_>>().join(",")
}

/// Compares every case on every device; whether nothing failed.
pub fn test(devices: &[Arc<dyn Device>], cases: &[&Case], args: &Args, verbose: bool) -> bool {
    let cpu: Arc<dyn Device> = Arc::new(CpuDevice::new(FusionConfig::default()));
    let as_csv = args.output == Output::Csv;
    if as_csv {
        println!("device,op,params,status,nmse,reason");
    }
    let mut good = true;
    for device in devices {
        let (start, name) = (Instant::now(), &device.info().name);
        if !as_csv {
            println!("{name}: {}, {} cases", device.info().description, cases.len());
        }
        let outcomes = judge_all(device, &cpu, cases, args.seed);
        let mut counts: BTreeMap<&str, ([usize; 3], Option<&str>)> = BTreeMap::new();
        for (case, outcome) in cases.iter().zip(&outcomes) {
            let (counts, first) = counts.entry(&case.label).or_default();
            let (at, status, error, reason) = match outcome {
                Outcome::Passed(error) => (0, "passed", format!("{error:.1e}"), ""),
                Outcome::Failed(reason) => (1, "FAILED", String::new(), reason.as_str()),
                Outcome::Unsupported(reason) => (2, "unsupported", String::new(), reason.as_str()),
            };
            counts[at] += 1;
            if at == 2 {
                first.get_or_insert(reason);
            }
            if as_csv {
                println!("{}", csv(&[name, &case.label, &case.params, status, &error, reason]));
            } else if verbose || at == 1 {
                println!("  {status} {}({}) {error}{reason}", case.label, case.params);
            }
        }
        let mut totals = [0; 3];
        for (label, (counts, first)) in &counts {
            (0..3).for_each(|at| totals[at] += counts[at]);
            if !as_csv {
                let reason = first.map_or(String::new(), |reason| format!("  e.g. {reason}"));
                let [passed, failed, unsupported] = counts;
                println!("  {label:<28} {passed:>5} passed {failed:>5} failed {unsupported:>5} unsupported{reason}");
            }
        }
        let [passed, failed, unsupported] = totals;
        if !as_csv {
            let seconds = start.elapsed().as_secs_f64();
            println!("{name}: {passed} passed, {failed} failed, {unsupported} unsupported in {seconds:.1} s");
        }
        good &= failed == 0;
    }
    good
}

/// Which operations and types every device has.
pub fn support(devices: &[Arc<dyn Device>], cases: &[&Case], as_csv: bool) {
    if as_csv {
        println!("device,op,type,supported,cases,reason");
    }
    for device in devices {
        let mut table: BTreeMap<(&str, DType), ([usize; 2], String)> = BTreeMap::new();
        for case in cases {
            let (counts, first) = table.entry((&case.label, case.dtype)).or_default();
            let mut built = Builder::empty();
            let refused = match (case.build)(&mut built) {
                Ok(()) => refusal(device, &built),
                Err(error) => Some(error.to_string()),
            };
            counts[usize::from(refused.is_some())] += 1;
            if let Some(reason) = refused.filter(|_| first.is_empty()) {
                *first = reason;
            }
        }
        let name = &device.info().name;
        for ((label, dtype), ([yes, no], reason)) in &table {
            if as_csv {
                let (yes, all) = (yes.to_string(), (yes + no).to_string());
                println!("{}", csv(&[name, label, dtype.name(), &yes, &all, reason]));
            } else {
                let answer = if *no == 0 {
                    "yes"
                } else if *yes == 0 {
                    "no"
                } else {
                    "some"
                };
                println!("{name:<6} {label:<28} {:<8} {answer:<4} {yes:>4} of {:<4} {reason}", dtype.name(), yes + no);
            }
        }
    }
}
