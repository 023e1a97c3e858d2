//! Known answers, asked of an adapter before it is trusted: software adapters and translation layers have returned wrong
//! sums, and a subgroup size that is not the real one makes shuffles return garbage.

use super::buffers::Buffers;
use super::caps::Caps;
use super::dispatch::{Access, Binding, Dispatch, Param, ParamType, Switch};
use super::driver::Driver;
use super::pipeline::Pipelines;
use crate::device::DeviceError;
use crate::graph::DType;
use crate::plan::Place;
use half::{bf16, f16};

/// Threads of each test, and numbers it works on.
const THREADS: u32 = 64;

/// Rows of results of `selftest_subgroups`.
const SUBGROUP_ROWS: usize = 6;

/// What an adapter answered; `None` where it was not asked or could not run the question.
#[derive(Clone, Debug, PartialEq)]
struct Answers {
    /// Half of each of the numbers 1 to [`THREADS`], added up.
    sum: f32,
    /// [`samples`] as bf16, by 32-bit words.
    words: Vec<u16>,
    /// [`samples`] as f16, and these read back.
    f16: Option<(Vec<u16>, Vec<f32>)>,
    /// What `selftest_subgroups` gives for the numbers 0 to [`THREADS`].
    subgroups: Option<Vec<i32>>,
}

/// Numbers that f16 and bf16 hold exactly, so that drivers may round as they like.
fn samples() -> Vec<f32> {
    (0..THREADS).map(|i| (i as f32 - 31.0) * 2f32.powi(i as i32 % 9 - 4)).collect()
}

/// Asks, and gives the capabilities that survive.
///
/// # Errors
/// When what every kernel needs does not work.
pub(super) fn run(
    driver: &Driver,
    pipelines: &Pipelines,
    buffers: &Buffers,
    offered: Caps,
) -> Result<Caps, DeviceError> {
    let ask = |caps: Caps, question: &Question<'_>| question.ask(driver, pipelines, buffers, &caps);
    let plain = Caps { f16: false, subgroups: false, ..offered };
    let numbers = |from: u32| (from..from + THREADS).flat_map(|i| i.to_le_bytes()).collect::<Vec<_>>();
    let floats: Vec<u8> = (1..=THREADS).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let sample_bytes: Vec<u8> = samples().into_iter().flat_map(f32::to_le_bytes).collect();

    let f16 = || -> Result<_, DeviceError> {
        let halves = ask(offered, &Question::copy((DType::F32, &sample_bytes), DType::F16))?;
        let back = ask(offered, &Question::copy((DType::F16, &halves), DType::F32))?;
        Ok((bytemuck::pod_collect_to_vec(&halves), bytemuck::pod_collect_to_vec(&back)))
    };
    let subgroups = || -> Result<_, DeviceError> {
        let asked = Question {
            kernel: "selftest_subgroups",
            switches: Vec::new(),
            source: (DType::I32, &numbers(0)),
            result: (DType::I32, SUBGROUP_ROWS * THREADS as usize),
            param: None,
        };
        Ok(bytemuck::pod_collect_to_vec(&ask(offered, &asked)?))
    };
    // The plain questions come last: a device that was lost over another one then cannot be opened.
    let f16 = offered.f16.then(|| f16().inspect_err(|error| log::warn!("self-test of f16: {error}")).ok()).flatten();
    let subgroups = offered
        .subgroups
        .then(|| subgroups().inspect_err(|error| log::warn!("self-test of subgroups: {error}")).ok())
        .flatten();
    let sum = ask(
        plain,
        &Question {
            kernel: "selftest_sum",
            switches: Vec::new(),
            source: (DType::F32, &floats),
            result: (DType::F32, 1),
            param: Some(Param { name: "factor".to_owned(), kind: ParamType::F32, bits: 0.5f32.to_bits() }),
        },
    )?;
    let words = ask(plain, &Question::copy((DType::F32, &sample_bytes), DType::BF16))?;
    let answers = Answers {
        sum: bytemuck::pod_read_unaligned(&sum),
        words: bytemuck::pod_collect_to_vec(&words),
        f16,
        subgroups,
    };
    let caps = survivors(offered, &answers).map_err(|reason| driver.failure(reason))?;
    if offered.f16 && !caps.f16 {
        log::warn!("{}: f16 is not used, its self-test failed", driver.name);
    }
    if offered.subgroups && !caps.subgroups {
        log::warn!("{}: subgroups are not used, their self-test failed", driver.name);
    }
    Ok(caps)
}

/// A kernel over one source and one result.
struct Question<'a> {
    kernel: &'static str,
    switches: Vec<(&'static str, Switch)>,
    source: (DType, &'a [u8]),
    result: (DType, usize),
    param: Option<Param>,
}

impl<'a> Question<'a> {
    fn copy(source: (DType, &'a [u8]), result: DType) -> Self {
        Question {
            kernel: "copy",
            switches: vec![("dense", Switch::Bool(true)), ("wide", Switch::Bool(false))],
            source,
            result: (result, THREADS as usize),
            param: Some(Param { name: "count".to_owned(), kind: ParamType::U32, bits: THREADS }),
        }
    }

    fn ask(
        &self,
        driver: &Driver,
        pipelines: &Pipelines,
        buffers: &Buffers,
        caps: &Caps,
    ) -> Result<Vec<u8>, DeviceError> {
        let mut answer = vec![0; self.result.1 * self.result.0.block_bytes()];
        let create = |bytes| buffers.create(driver, "self-test", bytes, usize::MAX);
        let (source, result) = (create(self.source.1.len())?, create(answer.len())?);
        buffers.write(driver, pipelines, caps, source, 0, self.source.1)?;
        let binding = |role, id, dtype, access| Binding { role, place: Place::Buffer(id), dtype, access };
        let offset = |name: &str| Param { name: name.to_owned(), kind: ParamType::U32, bits: 0 };
        let dispatches = [Dispatch {
            kernel: self.kernel,
            switches: self.switches.clone(),
            bindings: vec![
                binding("src", source, self.source.0, Access::SharedRead),
                binding("dst", result, self.result.0, Access::Write),
            ],
            params: [offset("src_offset"), offset("dst_offset")].into_iter().chain(self.param.clone()).collect(),
            workgroup: THREADS,
            grid: [1; 3],
        }];
        let kernels = pipelines.kernels(driver, caps, &dispatches)?;
        let bound = vec![buffers.get(source)?.buffer, buffers.get(result)?.buffer];
        super::record::Steps::new(driver, &dispatches, &kernels, &[bound])?.submit(driver)?;
        buffers.read(driver, result, 0, &mut answer)?;
        buffers.destroy(source);
        buffers.destroy(result);
        Ok(answer)
    }
}

/// Which capabilities the answers leave.
///
/// # Errors
/// When an answer that every kernel relies on is wrong.
fn survivors(offered: Caps, answers: &Answers) -> Result<Caps, String> {
    let Answers { sum, words, f16, subgroups } = answers;
    let expected = (THREADS * (THREADS + 1) / 2) as f32 * 0.5;
    if *sum != expected {
        return Err(format!("the adapter computes wrongly: a sum in workgroup memory is {sum}, not {expected}"));
    }
    if *words != samples().into_iter().map(|x| bf16::from_f32(x).to_bits()).collect::<Vec<_>>() {
        return Err("the adapter computes wrongly: 16-bit stores by atomic operations are lost".to_owned());
    }
    let halves: Vec<_> = samples().into_iter().map(|x| f16::from_f32(x).to_bits()).collect();
    let f16 = f16.as_ref().is_some_and(|(stored, loaded)| *stored == halves && *loaded == samples());
    let subgroups = subgroups.as_ref().is_some_and(|rows| subgroups_right(&offered, rows));
    Ok(Caps { f16: offered.f16 && f16, subgroups: offered.subgroups && subgroups, ..offered })
}

/// Checks the rows of `selftest_subgroups` against each other, since nobody promises which thread is in which subgroup:
/// the threads that broadcast one number are a subgroup.
fn subgroups_right(offered: &Caps, rows: &[i32]) -> bool {
    let threads = THREADS as usize;
    let [sizes, lanes, sums, maxima, neighbours, firsts]: [&[i32]; SUBGROUP_ROWS] =
        match rows.chunks(threads).collect::<Vec<_>>().try_into() {
            Ok(rows) => rows,
            Err(_) => return false,
        };
    let possible = offered.min_subgroup as i32..=offered.max_subgroup as i32;
    (0..threads).all(|thread| {
        let members: Vec<_> = (0..threads).filter(|&other| firsts[other] == firsts[thread]).collect();
        let size = sizes[thread];
        let whole = members.len() == size.min(THREADS as i32) as usize;
        let lane_of = |lane: i32| members.iter().copied().find(|&other| lanes[other] == lane);
        let distinct = (0..members.len() as i32).all(|lane| lane_of(lane).is_some());
        let sum: usize = members.iter().sum();
        possible.contains(&size)
            && whole
            && distinct
            && lane_of(0).is_some_and(|first| firsts[thread] == first as i32)
            && sums[thread] == sum as i32
            && members.last().is_some_and(|&last| maxima[thread] == last as i32)
            && lane_of(lanes[thread] ^ 1).is_none_or(|other| neighbours[thread] == other as i32)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered() -> Caps {
        Caps {
            f16: true,
            subgroups: true,
            min_subgroup: 8,
            max_subgroup: 32,
            max_bindings: 8,
            max_groups: 65535,
            max_threads: 256,
            max_workgroup_bytes: 16384,
            max_binding_bytes: 128 << 20,
        }
    }

    fn subgroup_rows(size: i32) -> Vec<i32> {
        let row = |f: &dyn Fn(i32) -> i32| (0..THREADS as i32).map(f).collect::<Vec<_>>();
        let first = |i: i32| i / size * size;
        [
            row(&|_| size),
            row(&|i| i % size),
            row(&|i| (first(i)..first(i) + size).sum()),
            row(&|i| first(i) + size - 1),
            row(&|i| i ^ 1),
            row(&first),
        ]
        .concat()
    }

    fn right() -> Answers {
        Answers {
            sum: 1040.0,
            words: samples().into_iter().map(|x| bf16::from_f32(x).to_bits()).collect(),
            f16: Some((samples().into_iter().map(|x| f16::from_f32(x).to_bits()).collect(), samples())),
            subgroups: Some(subgroup_rows(8)),
        }
    }

    #[test]
    fn samples_are_exact_in_both_half_types() {
        assert!(samples().into_iter().all(|x| f16::from_f32(x).to_f32() == x && bf16::from_f32(x).to_f32() == x));
    }

    #[test]
    fn right_answers_keep_everything() {
        assert_eq!(survivors(offered(), &right()), Ok(offered()));
        let wide = Answers { subgroups: Some(subgroup_rows(32)), ..right() };
        assert_eq!(survivors(offered(), &wide), Ok(offered()));
    }

    #[test]
    fn a_wrong_sum_refuses_the_adapter() {
        let error = survivors(offered(), &Answers { sum: 3.0, ..right() }).unwrap_err();
        assert!(error.contains("sum in workgroup memory is 3, not 1040"), "{error}");
    }

    #[test]
    fn lost_half_words_refuse_the_adapter() {
        let mut answers = right();
        answers.words[5] = 0;
        assert!(survivors(offered(), &answers).is_err());
    }

    #[test]
    fn wrong_halves_cost_f16_alone() {
        let mut answers = right();
        if let Some((stored, _)) = &mut answers.f16 {
            stored[7] ^= 1;
        }
        assert_eq!(survivors(offered(), &answers), Ok(Caps { f16: false, ..offered() }));
        assert_eq!(survivors(offered(), &Answers { f16: None, ..right() }), Ok(Caps { f16: false, ..offered() }));
    }

    #[test]
    fn wrong_subgroups_cost_subgroups_alone() {
        let without = Ok(Caps { subgroups: false, ..offered() });
        for row in 0..SUBGROUP_ROWS {
            let mut rows = subgroup_rows(16);
            rows[row * THREADS as usize + 9] += 1;
            assert_eq!(survivors(offered(), &Answers { subgroups: Some(rows), ..right() }), without, "row {row}");
        }
        for rows in [None, Some(Vec::new()), Some(subgroup_rows(64)), Some(vec![0; SUBGROUP_ROWS * THREADS as usize])] {
            assert_eq!(survivors(offered(), &Answers { subgroups: rows, ..right() }), without);
        }
    }

    #[test]
    fn what_was_not_offered_is_not_used() {
        let plain = Caps { f16: false, subgroups: false, ..offered() };
        assert_eq!(survivors(plain, &right()), Ok(plain));
    }
}
