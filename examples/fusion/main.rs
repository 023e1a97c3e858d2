//! The fusion check: runs every model on a device fused and unfused and on the CPU device, counts what fused, and
//! compares the counts with a baseline and the results with each other.
//!
//! Exit status: 0 when nothing failed, 1 when something did, 2 for a wrong command line or a file that cannot be read,
//! 3 when the device that was asked for is not here.

mod baseline;
mod measure;
#[path = "../shared/protocol.rs"]
mod protocol;
mod report;

use baseline::Subject;
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use measure::{Measured, Pair};
use report::{Outcome, Report};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;
use wgfuse::cpu::CpuDevice;
use wgfuse::device::{Device, DeviceError};
use wgfuse::fusion::{FusionConfig, FusionSet};
use wgfuse::gpu::backend_limits;
use wgfuse::model::{Dummy, Model, Variant};
use wgfuse::plan::Limits;

/// The seed of the dummies' weights and of the tokens.
const SEED: u64 = 1;

/// Checks what fuses on a device, and that it changes no result.
#[derive(Parser)]
struct Args {
    /// Folder of GGUF files to run; the built-in dummies without it
    #[arg(long, value_name = "DIR", conflicts_with = "model")]
    models: Option<PathBuf>,
    /// One GGUF file to run; only its rows are compared
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// Device to run on; the best one without it
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// List the devices of this machine
    #[arg(long)]
    list_devices: bool,
    /// Write the counts as a baseline
    #[arg(long, value_name = "CSV", conflicts_with = "check")]
    record: Option<PathBuf>,
    /// Compare with this baseline instead of baselines/BACKEND.SET.csv
    #[arg(long, value_name = "CSV", num_args = 0..=1)]
    check: Option<Option<PathBuf>>,
    /// Table to match with and to compare with: published12, published26 or all
    #[arg(long, value_name = "SET", default_value = FusionSet::Published12.name())]
    table: FusionSet,
    /// Count from plans alone, for a backend (MTL, VK, DX12, GL, CPU) that need not be here
    #[arg(long, requires = "device")]
    plan_only: bool,
}

/// Why the check could not be made.
enum Abort {
    Usage(String),
    NoDevice(String),
}

fn main() -> ExitCode {
    env_logger::init();
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(Abort::Usage(reason)) => {
            eprintln!("error: {reason}");
            ExitCode::from(2)
        }
        Err(Abort::NoDevice(reason)) => {
            eprintln!("error: {reason}");
            ExitCode::from(3)
        }
    }
}

/// Whether nothing failed.
fn run(args: &Args) -> Result<bool, Abort> {
    if args.list_devices {
        for info in wgfuse::list_devices() {
            println!("{:<8} {}", info.name, info.description);
        }
        return Ok(true);
    }
    let start = Instant::now();
    let fusion = FusionConfig::from_env(args.table);
    let target = if args.plan_only { Target::plans(args)? } else { Target::open(args, fusion)? };
    let sources = sources(args)?;
    let baseline = match &args.record {
        Some(_) => None,
        None => Some(baseline::read(&baseline_path(args, target.backend())).map_err(Abort::Usage)?),
    };
    println!("{}", target.describe(args.table));

    let bar = ProgressBar::new(sources.len() as u64).with_style(bar_style());
    let mut outcomes = Vec::new();
    for source in sources {
        bar.set_message(source.name.clone());
        outcomes.push(source.measure(&target, fusion));
        bar.inc(1);
    }
    bar.finish_and_clear();

    let only = args.model.as_ref().and_then(|_| outcomes.first()).map(|outcome| outcome.subject.clone());
    let report = Report::new(&outcomes, baseline.as_ref(), only.as_ref());
    println!("{report} in {:.1} s", start.elapsed().as_secs_f64());
    if let Some(path) = &args.record
        && report.failed() == 0
    {
        let text = baseline::render(&report::counts(&outcomes), args.table.name());
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        folder
            .map_or(Ok(()), std::fs::create_dir_all)
            .and_then(|()| std::fs::write(path, text))
            .map_err(|error| Abort::Usage(format!("{}: {error}", path.display())))?;
        println!("recorded {}", path.display());
    }
    Ok(report.failed() == 0)
}

fn bar_style() -> ProgressStyle {
    ProgressStyle::with_template("{bar:32} {pos}/{len} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Where models run, or are planned for.
enum Target {
    Device(Arc<dyn Device>),
    Plans { backend: String, limits: Limits },
}

impl Target {
    fn open(args: &Args, fusion: FusionConfig) -> Result<Self, Abort> {
        match wgfuse::open_device_with(args.device.as_deref(), fusion) {
            Ok(device) => Ok(Self::Device(device)),
            Err(error @ DeviceError::NoDevice { .. }) => Err(Abort::NoDevice(error.to_string())),
            Err(error) => Err(Abort::NoDevice(format!("the device does not open: {error}"))),
        }
    }

    fn plans(args: &Args) -> Result<Self, Abort> {
        let name = args.device.clone().unwrap_or_default().to_uppercase();
        let cpu = || (name == "CPU").then(|| CpuDevice::new(FusionConfig::default()).limits());
        let limits = backend_limits(&name).or_else(cpu).ok_or_else(|| {
            Abort::Usage(format!("--plan-only knows no backend `{name}`, expected MTL, VK, DX12, GL or CPU"))
        })?;
        Ok(Self::Plans { backend: name, limits })
    }

    fn backend(&self) -> &str {
        match self {
            Self::Device(device) => device.info().backend,
            Self::Plans { backend, .. } => backend,
        }
    }

    fn describe(&self, table: FusionSet) -> String {
        match self {
            Self::Device(device) => {
                let info = device.info();
                let mut text = format!("{}: {}, table {}", info.name, info.description, table.name());
                if info.backend == "CPU" && wgfuse::list_devices().len() == 1 {
                    text += "\nno GPU was found: install its Vulkan driver, or Mesa's software one \
                             (Debian: apt-get install mesa-vulkan-drivers libvulkan1)";
                }
                text
            }
            Self::Plans { backend, .. } => format!("{backend}: plans only, table {}", table.name()),
        }
    }
}

/// A model that is yet to be loaded.
struct Source {
    /// For the progress bar, and for the report if the model does not load.
    name: String,
    load: Box<dyn FnOnce() -> Result<Model, String>>,
}

impl Source {
    fn file(path: PathBuf) -> Self {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Self { name, load: Box::new(move || Model::open(&path).map_err(|error| error.to_string())) }
    }

    fn dummy(variant: Variant) -> Self {
        let load = move || Dummy::new(variant.arch, variant.experts, SEED)?.model();
        Self { name: variant.to_string(), load: Box::new(move || load().map_err(|error| error.to_string())) }
    }

    fn measure(self, target: &Target, fusion: FusionConfig) -> Outcome {
        let model = match (self.load)() {
            Ok(model) => model,
            Err(reason) => {
                let subject = Subject { arch: self.name, variant: "?".to_owned() };
                return Outcome { subject, result: Err(reason) };
            }
        };
        let variant = if model.hparams().n_expert > 0 { "moe" } else { "dense" };
        let subject = Subject { arch: model.arch().to_owned(), variant: variant.to_owned() };
        let result: Result<Pair<Measured>, String> = match target {
            Target::Device(device) => measure::run(model, device, SEED),
            Target::Plans { limits, .. } => measure::plan_only(&model, limits, fusion.matcher),
        };
        Outcome { subject, result }
    }
}

/// The models that the command line names.
fn sources(args: &Args) -> Result<Vec<Source>, Abort> {
    let unreadable = |path: &Path, reason: String| Abort::Usage(format!("{}: {reason}", path.display()));
    if let Some(path) = &args.model {
        std::fs::File::open(path).map_err(|error| unreadable(path, error.to_string()))?;
        return Ok(vec![Source::file(path.clone())]);
    }
    let Some(folder) = &args.models else { return Ok(Variant::all().map(Source::dummy).collect()) };
    let entries = std::fs::read_dir(folder).map_err(|error| unreadable(folder, error.to_string()))?;
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| unreadable(folder, error.to_string()))?.path();
        if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf")) {
            paths.push(path);
        }
    }
    if paths.is_empty() {
        return Err(unreadable(folder, "no GGUF files".to_owned()));
    }
    paths.sort();
    Ok(paths.into_iter().map(Source::file).collect())
}

/// The baseline that was named, or the backend's own: below the current folder, or where the crate was built.
fn baseline_path(args: &Args, backend: &str) -> PathBuf {
    if let Some(Some(path)) = &args.check {
        return path.clone();
    }
    let own = PathBuf::from(format!("baselines/{backend}.{}.csv", args.table.name()));
    if own.exists() { own } else { Path::new(env!("CARGO_MANIFEST_DIR")).join(own) }
}
