//! Every operation on every device: `test` compares with the CPU device, `support` says what a device has, `perf` how
//! fast it is.
//!
//! Exit status: 0 when nothing failed, 1 when something did, 2 for a wrong command line, 3 when the device that was
//! asked for is not here.

mod builder;
mod cases;
mod check;
mod perf;
mod report;

use cases::Case;
use clap::{Parser, Subcommand, ValueEnum};
use regex::Regex;
use std::process::ExitCode;
use std::sync::Arc;
use wgfuse::device::Device;

/// Checks operations one by one.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
    /// Operations or patterns; all without it
    #[arg(short, value_name = "OP", value_delimiter = ',', global = true)]
    ops: Vec<String>,
    /// Device; every GPU found without it
    #[arg(short = 'b', value_name = "DEVICE", global = true)]
    device: Option<String>,
    /// Only cases whose parameters match
    #[arg(short, value_name = "REGEX", global = true)]
    params: Option<Regex>,
    /// How to print
    #[arg(long, value_enum, default_value_t = Output::Console, global = true)]
    output: Output,
    /// Where the numbers come from
    #[arg(long, default_value_t = 1, global = true)]
    seed: u64,
}

#[derive(Subcommand)]
enum Command {
    /// Compare with the CPU device
    Test {
        /// Only the first cases of every operation and type
        #[arg(long)]
        subset: bool,
        /// Print every case, not only those that fail
        #[arg(long)]
        verbose: bool,
    },
    /// Say which operations and types a device has
    Support,
    /// Measure
    Perf,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Output {
    Console,
    Csv,
}

fn main() -> ExitCode {
    env_logger::init();
    let args = Args::parse();
    let devices = match open(args.device.as_deref()) {
        Ok(devices) => devices,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(3);
        }
    };
    if devices.is_empty() {
        println!("no GPU is here: nothing to compare with the CPU device");
        return if std::env::var_os("WGFUSE_REQUIRE_GPU").is_some() { ExitCode::from(3) } else { ExitCode::SUCCESS };
    }
    if matches!(args.command, Command::Perf) {
        return perf::run(&devices, &args.ops, args.output == Output::Csv);
    }
    let all = cases::all();
    let known = |op: &&String| !all.iter().any(|case| case.label.eq_ignore_ascii_case(op));
    if let Some(unknown) = args.ops.iter().find(known) {
        eprintln!("error: no cases for `{unknown}`");
        return ExitCode::from(2);
    }
    let subset = matches!(args.command, Command::Test { subset: true, .. });
    let chosen: Vec<&Case> = if subset { cases::subset(&all) } else { all.iter().collect() };
    let wanted = |case: &&Case| {
        (args.ops.is_empty() || args.ops.iter().any(|op| case.label.eq_ignore_ascii_case(op)))
            && args.params.as_ref().is_none_or(|params| params.is_match(&case.params))
    };
    let chosen: Vec<&Case> = chosen.into_iter().filter(wanted).collect();
    match args.command {
        Command::Test { verbose, .. } => {
            let missing = cases::missing(&all);
            if !missing.is_empty() {
                println!("no cases for {missing:?}");
            }
            if report::test(&devices, &chosen, &args, verbose) { ExitCode::SUCCESS } else { ExitCode::from(1) }
        }
        Command::Support | Command::Perf => {
            report::support(&devices, &chosen, args.output == Output::Csv);
            ExitCode::SUCCESS
        }
    }
}

/// The device of this name, or every GPU.
fn open(name: Option<&str>) -> Result<Vec<Arc<dyn Device>>, String> {
    let names = match name {
        Some(name) => vec![name.to_owned()],
        None => wgfuse::list_devices().into_iter().map(|info| info.name).filter(|name| name != "CPU").collect(),
    };
    names.iter().map(|name| wgfuse::open_device(Some(name)).map_err(|error| error.to_string())).collect()
}
