//! The fusion check as a program: what it prints, what makes it fail, and with which exit status.

// The parts of the example, whose own tests run here: a test of an example takes the place of its program.
#[path = "../../examples/fusion/baseline.rs"]
#[allow(dead_code, reason = "the program uses the rest")]
mod baseline;
#[path = "../../examples/fusion/measure.rs"]
#[allow(dead_code, reason = "the program uses the rest")]
mod measure;
#[path = "../../examples/fusion/report.rs"]
#[allow(dead_code, reason = "the program uses the rest")]
mod report;

use crate::devices::devices;
use crate::protocol;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use wgfuse::device::Device;

/// Builds of examples lie beside the folder that tests are built in.
fn example(name: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(Path::parent).unwrap();
    let mut command = Command::new(folder.join("examples").join(name).with_extension(std::env::consts::EXE_EXTENSION));
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    for variable in ["WGFUSE_FUSION_DISABLE", "WGFUSE_SHADER_DIR", "WGFUSE_GRAPH_OPTIMIZE_DISABLE", "RUST_LOG"] {
        command.env_remove(variable);
    }
    command
}

fn fusion(args: &[&str]) -> Output {
    example("fusion").args(args).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Asserts the exit status and what the output says.
#[track_caller]
fn assert_ends(output: &Output, status: i32, says: &str) {
    let text = text(output);
    assert_eq!(output.status.code(), Some(status), "{text}");
    assert!(text.contains(says), "no `{says}` in:\n{text}");
}

/// A folder of this test's own, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("wgfuse-check-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn recorded(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("baselines").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// Label and count of each row, by architecture; the fields of a line are divided by commas.
fn rows(text: &str, label: usize) -> BTreeMap<String, Vec<(String, String)>> {
    let mut rows: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let counts = rows.entry(fields[0].to_owned()).or_default();
        counts.push((fields[label].to_owned(), fields[label + 1].to_owned()));
        counts.sort();
    }
    rows
}

#[test]
fn every_backend_has_the_published_counts() {
    let vulkan = recorded("VK.published12.csv");
    for other in ["GL", "CPU", "MTL"] {
        assert_eq!(recorded(&format!("{other}.published12.csv")), vulkan, "{other}");
    }
    let Some(golden) = crate::golden::directory() else { return };
    let published = std::fs::read_to_string(golden.join("../baselines/table12.csv")).unwrap();
    let mut published = rows(&published, 3);
    let ours = rows(&vulkan, 4);
    published.retain(|arch, _| ours.contains_key(arch));
    assert_eq!(ours, published);
}

#[test]
fn the_check_passes_on_every_device() {
    let gpus = devices().iter().map(|device| device.info().name.clone());
    for name in gpus.chain(["CPU".to_owned()]) {
        assert_ends(&fusion(&["--device", &name]), 0, "8 models, 14 rows: 14 ok, 0 failed");
    }
    assert_ends(&fusion(&["--device", "MTL", "--plan-only", "--check"]), 0, "14 ok, 0 failed");
    assert_ends(&fusion(&["--list-devices"]), 0, "CPU");
}

#[test]
fn a_pattern_that_is_gone_is_noticed() {
    let output = example("fusion").args(["--device", "CPU"]).env("WGFUSE_FUSION_DISABLE", "NormMul").output().unwrap();
    assert_ends(&output, 1, "FAILED: missing; baseline has 5");
    // So is one that fires less often.
    let output =
        example("fusion").args(["--device", "CPU"]).env("WGFUSE_GRAPH_OPTIMIZE_DISABLE", "1").output().unwrap();
    assert_ends(&output, 1, "FAILED");
}

#[test]
fn a_kernel_that_is_wrong_is_noticed() {
    let folder = Folder::new("kernel");
    let norm = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("wgsl/norm.wgsl")).unwrap();
    let broken = norm.replace("value *= w_load(", "value *= 1.02 * w_load(");
    assert_ne!(broken, norm);
    std::fs::write(folder.path("norm.wgsl"), broken).unwrap();
    for device in devices() {
        let mut command = example("fusion");
        command.args(["--device", &device.info().name]).env("WGFUSE_SHADER_DIR", folder.path(""));
        let output = command.output().unwrap();
        assert_ends(&output, 1, "fused differs from unfused; differs from the CPU");
        assert_ends(&output, 1, "14 rows: 0 ok, 14 failed");
    }
}

#[test]
fn a_baseline_with_another_count_fails_and_so_does_one_with_a_row_more_or_less() {
    let folder = Folder::new("baseline");
    let own = recorded("CPU.published12.csv");
    let check = |text: String, says| {
        let path = folder.path("changed.csv");
        std::fs::write(&path, text).unwrap();
        assert_ends(&fusion(&["--device", "CPU", "--check", &path]), 1, says);
    };
    check(own.replacen("      8", "      9", 1), "FAILED: baseline has 9");
    check(own.clone() + "gpt2,0,dense,any,NORM+MUL,3\n", "FAILED: missing; baseline has 3");
    check(own.clone() + "another,0,dense,any,NORM+MUL,3\n", "FAILED: missing; baseline has 3");
    let without: String =
        own.lines().filter(|line| !line.contains("phi2")).map(|line| line.to_owned() + "\n").collect();
    check(without, "FAILED: not in the baseline");
    // As many failures as an exit status wraps at must not look like none.
    let many: String = (0..256).map(|i| format!("arch{i},0,dense,any,ADD+ADD,1\n")).collect();
    check(own + &many, "256 failed");
}

#[test]
fn what_was_recorded_passes() {
    let folder = Folder::new("record");
    let path = folder.path("new/CPU.csv");
    assert_ends(&fusion(&["--device", "CPU", "--record", &path]), 0, "recorded");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), recorded("CPU.published12.csv"));
}

#[test]
fn files_are_checked_like_built_in_models_and_alone() {
    let folder = Folder::new("files");
    assert_ends(&example("archs").args(["-o", &folder.path("models")]).output().unwrap(), 0, "8 models, 0 failed");
    let models = folder.path("models");
    assert_ends(&fusion(&["--device", "CPU", "--models", &models]), 0, "8 models, 14 rows: 14 ok, 0 failed");
    let one = folder.path("models/gpt2-dense.gguf");
    assert_ends(&fusion(&["--device", "CPU", "--model", &one]), 0, "1 models, 1 rows: 1 ok, 0 failed");

    std::fs::remove_file(folder.path("models/phi2-dense.gguf")).unwrap();
    assert_ends(&fusion(&["--device", "CPU", "--models", &models]), 1, "FAILED: missing; baseline has 2");
    let broken = std::fs::read(&one).unwrap();
    std::fs::write(&one, &broken[..broken.len() / 2]).unwrap();
    assert_ends(&fusion(&["--device", "CPU", "--model", &one]), 1, "1 failed");
}

#[test]
fn wrong_usage_and_absent_devices_have_an_exit_status_of_their_own() {
    let folder = Folder::new("usage");
    let absent = folder.path("absent");
    assert_ends(&fusion(&["--device", "CPU", "--table", "published13"]), 2, "published13");
    assert_ends(&fusion(&["--what"]), 2, "--what");
    assert_ends(&fusion(&["--device", "CPU", "--models", &absent]), 2, &absent);
    assert_ends(&fusion(&["--device", "CPU", "--models", &folder.path("")]), 2, "no GGUF files");
    assert_ends(&fusion(&["--device", "CPU", "--model", &absent]), 2, &absent);
    assert_ends(&fusion(&["--device", "CPU", "--check", &absent]), 2, &absent);
    assert_ends(&fusion(&["--device", "CPU", "--table", "all"]), 2, "CPU.all.csv");
    assert_ends(&fusion(&["--device", "XX7"]), 3, "no device `XX7`");
    assert_ends(&fusion(&["--device", "XX7", "--plan-only"]), 2, "XX7");
}

#[test]
fn dummies_survive_a_file_bit_for_bit() {
    let output = example("archs").args(["-b", "CPU", "-a", "^qwen3next"]).output().unwrap();
    assert_ends(&output, 0, "the same bits from a file");
    assert_ends(&output, 0, "1 models, 0 failed");
    assert_ends(&example("archs").args(["-a", "nothing"]).output().unwrap(), 2, "no model matches");
    assert_ends(&example("archs").args(["-b", "XX7"]).output().unwrap(), 3, "no device `XX7`");
    let Some(golden) = crate::golden::directory() else { return };
    let folder = Folder::new("logits");
    let args = ["-b", "CPU", "-a", "llama-dense", "--logits", &folder.path("")];
    assert_ends(&example("archs").args(args).output().unwrap(), 0, "1 models, 0 failed");
    let read = |path: &Path| bytemuck::pod_collect_to_vec::<u8, f32>(&std::fs::read(path).unwrap());
    let found = read(&folder.0.join("llama-dense.logits.f32"));
    let expected = read(&golden.join("llama-dense.logits.f32"));
    assert_eq!(found.len(), expected.len());
    assert!(crate::numbers::nmse(&found, &expected) <= 1e-6);
}
