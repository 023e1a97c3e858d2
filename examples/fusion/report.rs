//! The report: a row for each count, with what is wrong about it.

use super::baseline::{Counts, Key, Mode, Subject, Verdict, compare, merge};
use super::measure::{Measured, Pair};
use std::collections::BTreeMap;
use std::fmt;

/// The largest error that fusion, or a device, may make.
const MAX_NMSE: f64 = 1e-4;

/// What the run of one model gave, or why it did not run.
pub struct Outcome {
    /// The model.
    pub subject: Subject,
    /// Its results.
    pub result: Result<Pair<Measured>, String>,
}

/// A row of the report.
#[derive(Debug)]
struct Row {
    subject: Subject,
    mode: Mode,
    label: String,
    count: Option<u64>,
    errors: Errors,
    faults: Vec<String>,
}

/// The errors of one or both graphs.
#[derive(Clone, Copy, Debug, Default)]
struct Errors {
    against_unfused: Option<f64>,
    against_cpu: Option<f64>,
    unfused: u64,
}

/// The report of a run.
pub struct Report {
    rows: Vec<Row>,
    models: usize,
}

/// Every count of a run.
pub fn counts(outcomes: &[Outcome]) -> Counts {
    let merged = outcomes.iter().filter_map(|outcome| {
        let pair = outcome.result.as_ref().ok()?;
        Some(merge(&outcome.subject, &pair.prefill.fused, &pair.decode.fused))
    });
    merged.flatten().collect()
}

impl Report {
    /// Judges a run. Without a baseline the counts stand for themselves; with `only`, the baseline's rows of other
    /// models are left out.
    pub fn new(outcomes: &[Outcome], baseline: Option<&Counts>, only: Option<&Subject>) -> Self {
        let found = counts(outcomes);
        let verdicts = match baseline {
            Some(expected) => compare(expected, &found, only),
            None => found.keys().map(|key| (key.clone(), Verdict::Same)).collect(),
        };
        let by_subject: BTreeMap<&Subject, &Outcome> =
            outcomes.iter().map(|outcome| (&outcome.subject, outcome)).collect();
        let counted = verdicts.into_iter().map(|(key, verdict)| {
            let errors = by_subject.get(&key.subject).map_or_else(Errors::default, |outcome| errors(outcome, key.mode));
            Row::counted(&found, key, verdict, errors)
        });
        let mut rows: Vec<Row> = counted.collect();
        for outcome in outcomes {
            let plain = |faults| Row {
                subject: outcome.subject.clone(),
                mode: Mode::Any,
                label: "-".to_owned(),
                count: None,
                errors: errors(outcome, Mode::Any),
                faults,
            };
            match &outcome.result {
                Err(reason) => rows.push(plain(vec![reason.clone()])),
                // A model that fuses nothing is compared all the same.
                Ok(pair) if pair.prefill.fused.is_empty() && pair.decode.fused.is_empty() => {
                    rows.push(plain(errors(outcome, Mode::Any).faults()));
                }
                Ok(_) => {}
            }
        }
        rows.sort_by(|a, b| (&a.subject, &a.label, a.mode).cmp(&(&b.subject, &b.label, b.mode)));
        Self { rows, models: outcomes.len() }
    }

    /// Rows that failed.
    pub fn failed(&self) -> usize {
        self.rows.iter().filter(|row| !row.faults.is_empty()).count()
    }
}

impl Row {
    fn counted(found: &Counts, key: Key, verdict: Verdict, errors: Errors) -> Self {
        let mut faults = errors.faults();
        faults.extend(match verdict {
            Verdict::Same => None,
            Verdict::Differs { expected } => Some(format!("baseline has {expected}")),
            Verdict::Extra => Some("not in the baseline".to_owned()),
            Verdict::Missing { expected } => Some(format!("missing; baseline has {expected}")),
        });
        let count = found.get(&key).copied();
        Self { subject: key.subject, mode: key.mode, label: key.label, count, errors, faults }
    }
}

impl Errors {
    fn faults(&self) -> Vec<String> {
        let large = |error: Option<f64>| error.is_some_and(|error| error.is_nan() || error > MAX_NMSE);
        let mut faults = Vec::new();
        if self.unfused > 0 {
            faults.push(format!("{} fusions with fusion off", self.unfused));
        }
        if large(self.against_unfused) {
            faults.push("fused differs from unfused".to_owned());
        }
        if large(self.against_cpu) {
            faults.push("differs from the CPU".to_owned());
        }
        faults
    }
}

/// The errors that a row of this mode answers for: the worse ones where it stands for both graphs.
fn errors(outcome: &Outcome, mode: Mode) -> Errors {
    let Ok(pair) = &outcome.result else { return Errors::default() };
    let of = |measured: &Measured| Errors {
        against_unfused: measured.against_unfused,
        against_cpu: measured.against_cpu,
        unfused: measured.unfused,
    };
    let (prefill, decode) = (of(&pair.prefill), of(&pair.decode));
    match mode {
        Mode::Prefill => prefill,
        Mode::Decode => decode,
        Mode::Any => Errors {
            against_unfused: worse(prefill.against_unfused, decode.against_unfused),
            against_cpu: worse(prefill.against_cpu, decode.against_cpu),
            unfused: prefill.unfused + decode.unfused,
        },
    }
}

/// The larger error; a NaN is the largest.
fn worse(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    [a, b].into_iter().flatten().max_by(f64::total_cmp)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<12} {:<7} {:<7} {:<24} {:>5}  {:>12}  {:>12}  status",
            "arch", "variant", "mode", "fusion", "count", "NMSE unfused", "NMSE CPU"
        )?;
        for row in &self.rows {
            let Row { subject, mode, label, count, errors, faults } = row;
            let count = count.map_or_else(|| "-".to_owned(), |count| count.to_string());
            let error = |error: Option<f64>| error.map_or_else(|| "-".to_owned(), |error| format!("{error:.1e}"));
            let status = if faults.is_empty() { "ok".to_owned() } else { format!("FAILED: {}", faults.join("; ")) };
            writeln!(
                f,
                "{:<12} {:<7} {mode:<7} {label:<24} {count:>5}  {:>12}  {:>12}  {status}",
                subject.arch,
                subject.variant,
                error(errors.against_unfused),
                error(errors.against_cpu),
            )?;
        }
        let (rows, failed) = (self.rows.len(), self.failed());
        write!(f, "{} models, {rows} rows: {} ok, {failed} failed", self.models, rows - failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(measured: Measured) -> Outcome {
        let subject = Subject { arch: "llama".to_owned(), variant: "dense".to_owned() };
        Outcome { subject, result: Ok(Pair { prefill: measured.clone(), decode: measured }) }
    }

    fn measured(error: f64, unfused: u64) -> Measured {
        Measured {
            fused: [("ADD+ADD".to_owned(), 2)].into(),
            unfused,
            against_unfused: Some(error),
            against_cpu: Some(0.0),
        }
    }

    #[test]
    fn errors_fail_a_row_and_so_does_a_nan() {
        let failed = |error, unfused| Report::new(&[outcome(measured(error, unfused))], None, None).failed();
        assert_eq!([failed(1e-4, 0), failed(1.1e-4, 0), failed(f64::NAN, 0), failed(0.0, 1)], [0, 1, 1, 1]);
    }

    #[test]
    fn every_model_has_a_row_even_if_it_fuses_nothing_or_does_not_load() {
        let nothing = outcome(Measured::default());
        assert!(Report::new(&[nothing], Some(&Counts::new()), None).to_string().contains("1 rows: 1 ok, 0 failed"));
        let subject = Subject { arch: "x".to_owned(), variant: "dense".to_owned() };
        let broken = Outcome { subject, result: Err("no such key".to_owned()) };
        let report = Report::new(&[broken], Some(&Counts::new()), None);
        assert_eq!(report.failed(), 1);
        assert!(report.to_string().contains("FAILED: no such key"));
    }

    #[test]
    fn a_missing_row_fails_unless_only_another_model_was_asked_for() {
        let run = [outcome(measured(0.0, 0))];
        let mut baseline = counts(&run);
        let other = Subject { arch: "gpt2".to_owned(), variant: "dense".to_owned() };
        baseline.insert(Key { subject: other, label: "NORM+MUL".to_owned(), mode: Mode::Any }, 5);
        assert_eq!(Report::new(&run, Some(&baseline), None).failed(), 1);
        assert_eq!(Report::new(&run, Some(&baseline), Some(&run[0].subject)).failed(), 0);
    }
}
