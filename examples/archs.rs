//! Dummy models of every architecture: writes them as GGUF files, or checks that a device computes them as the CPU
//! device does and that a file gives the same results as the model it was made from, bit for bit.
//!
//! Exit status: 0 when everything was as it should be, 1 when not, 2 for a wrong command line or a folder that cannot be
//! written, 3 when the device that was asked for is not here.

#[path = "shared/protocol.rs"]
mod protocol;

use clap::Parser;
use protocol::nmse;
use regex::Regex;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use wgfuse::cpu::CpuDevice;
use wgfuse::device::Device;
use wgfuse::fusion::FusionConfig;
use wgfuse::gguf::Gguf;
use wgfuse::model::{Dummy, Model, Variant};
use wgfuse::runtime::{DeviceModel, Session, SessionOptions};

/// The largest error of a device against the CPU device.
const MAX_NMSE: f64 = 1e-4;

/// Writes or checks the dummy models.
#[derive(Parser)]
struct Args {
    /// Write the models to this folder as ARCH-dense.gguf and ARCH-moe.gguf instead of checking them
    #[arg(short, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Only models whose name (ARCH-dense, ARCH-moe) matches
    #[arg(short, value_name = "REGEX", default_value = "")]
    archs: Regex,
    /// Seed of the weights and of the tokens
    #[arg(short, default_value_t = 1)]
    seed: u64,
    /// Device to check; the best one without it
    #[arg(short = 'b', value_name = "DEVICE")]
    device: Option<String>,
    /// Write the device's logits to this folder as NAME.logits.f32: 32 rows of the prefill, then 16 of the decode
    #[arg(long, value_name = "DIR")]
    logits: Option<PathBuf>,
}

fn main() -> ExitCode {
    env_logger::init();
    let args = Args::parse();
    let folders = [&args.output, &args.logits];
    for folder in folders.into_iter().flatten() {
        if let Err(error) = std::fs::create_dir_all(folder) {
            eprintln!("error: {}: {error}", folder.display());
            return ExitCode::from(2);
        }
    }
    let variants: Vec<Variant> = Variant::all().filter(|variant| args.archs.is_match(&variant.to_string())).collect();
    if variants.is_empty() {
        eprintln!("error: no model matches `{}`", args.archs);
        return ExitCode::from(2);
    }
    if let Some(folder) = &args.output {
        return finish(variants.iter().map(|&variant| (variant, write(variant, args.seed, folder))));
    }
    let device = match wgfuse::open_device(args.device.as_deref()) {
        Ok(device) => device,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(3);
        }
    };
    println!("{}: {}", device.info().name, device.info().description);
    let check = |variant| check(variant, args.seed, &device, args.logits.as_deref());
    finish(variants.iter().map(|&variant| (variant, check(variant))))
}

/// Prints a line for each model, and the end.
fn finish(results: impl Iterator<Item = (Variant, Result<String, String>)>) -> ExitCode {
    let (mut count, mut failed) = (0, 0);
    for (variant, result) in results {
        count += 1;
        match result {
            Ok(line) => println!("{:<20} {line}", variant.to_string()),
            Err(reason) => {
                failed += 1;
                println!("{:<20} FAILED: {reason}", variant.to_string());
            }
        }
    }
    println!("{count} models, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

fn write(variant: Variant, seed: u64, folder: &Path) -> Result<String, String> {
    let path = folder.join(format!("{variant}.gguf"));
    let dummy = Dummy::new(variant.arch, variant.experts, seed).map_err(|error| error.to_string())?;
    dummy.write_gguf(&path).map_err(|error| error.to_string())?;
    Ok(path.display().to_string())
}

fn check(variant: Variant, seed: u64, device: &Arc<dyn Device>, logits: Option<&Path>) -> Result<String, String> {
    let dummy = Dummy::new(variant.arch, variant.experts, seed).map_err(|error| error.to_string())?;
    let model = || dummy.model().map_err(|error| error.to_string());
    let found = run(model()?, device, seed)?;

    let file = dummy.to_gguf().map_err(|error| error.to_string())?;
    let read = Gguf::from_bytes(file).map_err(|error| error.to_string())?;
    let read = Model::from_gguf(Arc::new(read)).map_err(|error| error.to_string())?;
    let again = run(read, device, seed)?;
    let same = found.len() == again.len() && found.iter().zip(&again).all(|(a, b)| a.to_bits() == b.to_bits());
    if !same {
        return Err("the model read from a file gives other results".to_owned());
    }

    let cpu: Arc<dyn Device> = Arc::new(CpuDevice::new(FusionConfig::default()));
    cpu.fusion().set_enabled(false);
    let error = nmse(&found, &run(model()?, &cpu, seed)?);
    if error.is_nan() || error > MAX_NMSE {
        return Err(format!("NMSE {error:.1e} against the CPU device"));
    }
    if let Some(folder) = logits {
        let path = folder.join(format!("{variant}.logits.f32"));
        let bytes: Vec<u8> = found.iter().flat_map(|logit| logit.to_le_bytes()).collect();
        std::fs::write(&path, bytes).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(format!("NMSE {error:.1e} against the CPU device, the same bits from a file"))
}

/// The logits of the prefill, then those of the decode.
fn run(model: Model, device: &Arc<dyn Device>, seed: u64) -> Result<Vec<f32>, String> {
    let logits = || {
        let model = DeviceModel::upload(Arc::new(model), Arc::clone(device))?;
        let mut session = Session::new(Arc::new(model), SessionOptions::default())?;
        let mut logits = protocol::prefill(&mut session, seed)?;
        logits.extend(protocol::decode(&mut session, seed)?);
        Ok(logits)
    };
    logits().map_err(|error: wgfuse::runtime::SessionError| error.to_string())
}
