//! From a dispatch to WGSL: declarations generated from its bindings and parameters, then the kernel's own source.

use super::caps::Caps;
use super::dispatch::{Access, Binding, Dispatch, Param, ParamType, Switch};
use crate::graph::DType;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::LazyLock;

macro_rules! sources {
    ($($name:literal,)+) => {
        &[$(($name, include_str!(concat!("../../wgsl/", $name, ".wgsl"))),)+]
    };
}

/// Kernel sources, and what they import, by file stem.
const SOURCES: &[(&str, &str)] = sources![
    "activation",
    "add_chain",
    "add_id",
    "arange",
    "argmax",
    "argsort",
    "attention",
    "binary",
    "concat",
    "copy",
    "cross_entropy",
    "cumsum",
    "diag",
    "fill",
    "gated_delta_net",
    "get_rows",
    "get_rows_back",
    "glu",
    "group_norm",
    "index",
    "matmul",
    "matvec",
    "merge",
    "norm",
    "opt_step",
    "order",
    "out_prod",
    "reduce",
    "repeat",
    "rope",
    "row_back",
    "selftest_subgroups",
    "selftest_sum",
    "set_rows",
    "snake",
    "soft_max",
    "solve_tri",
    "special",
    "ssm_conv",
    "sum_rows",
    "timestep_embedding",
    "total",
    "triangle",
    "unary",
    "window",
];

/// All sources, parsed once. Files of the folder `WGFUSE_SHADER_DIR` stand in for those of the same name, so that a
/// kernel can be changed without building the crate again.
static ENVIRONMENT: LazyLock<Result<minijinja::Environment<'static>, String>> = LazyLock::new(|| {
    let mut environment = minijinja::Environment::new();
    environment.set_undefined_behavior(minijinja::UndefinedBehavior::Strict);
    let folder = std::env::var_os("WGFUSE_SHADER_DIR").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    for &(name, source) in SOURCES {
        let own = folder.as_ref().map(|folder| folder.join(name).with_extension("wgsl")).filter(|path| path.exists());
        let source = match own {
            Some(path) => {
                Cow::Owned(std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?)
            }
            None => Cow::Borrowed(source),
        };
        environment.add_template_owned(name, source).map_err(|error| format!("{name}: {error:#}"))?;
    }
    Ok(environment)
});

/// The whole source of a dispatch's kernel for an adapter.
///
/// # Errors
/// What the template engine says: an unknown kernel, or a source that uses a switch the dispatch does not have.
pub fn compose(dispatch: &Dispatch, caps: &Caps) -> Result<String, minijinja::Error> {
    let environment = ENVIRONMENT
        .as_ref()
        .map_err(|error| minijinja::Error::new(minijinja::ErrorKind::SyntaxError, error.clone()))?;
    let mut context: BTreeMap<&str, minijinja::Value> =
        dispatch.switches.iter().map(|(name, value)| (*name, switch_value(value))).collect();
    context.insert("wg", dispatch.workgroup.into());
    context.insert("subgroups", caps.subgroups.into());
    context.insert("f16", caps.f16.into());
    let body = environment.get_template(dispatch.kernel)?.render(context)?;
    Ok(declarations(dispatch, caps) + &body)
}

fn switch_value(switch: &Switch) -> minijinja::Value {
    match switch {
        Switch::Bool(value) => (*value).into(),
        Switch::Int(value) => (*value).into(),
        Switch::Str(value) => (*value).into(),
        Switch::Ints(values) => values.clone().into(),
    }
}

/// Parameters, bindings, accessors and index helpers.
fn declarations(dispatch: &Dispatch, caps: &Caps) -> String {
    let mut text = String::new();
    let uses_f16 = caps.f16 && dispatch.bindings.iter().any(|binding| binding.dtype == DType::F16);
    if uses_f16 {
        text.push_str("enable f16;\n");
    }
    parameters(&mut text, &dispatch.params);
    for (index, binding) in dispatch.bindings.iter().enumerate() {
        buffer(&mut text, index, binding, uses_f16);
    }
    text.push_str(concat!(
        "fn group_index(group: vec3<u32>, groups: vec3<u32>) -> u32 { return group.y * groups.x + group.x; }\n",
        "fn thread_index(group: vec3<u32>, groups: vec3<u32>, local: u32) -> u32 {\n",
    ));
    let _ = writeln!(text, "    return group_index(group, groups) * {}u + local;\n}}", dispatch.workgroup);
    text
}

fn parameters(text: &mut String, params: &[Param]) {
    if params.is_empty() {
        return;
    }
    text.push_str("struct Params {\n");
    for param in params {
        let kind = match param.kind {
            ParamType::U32 => "u32",
            ParamType::F32 => "f32",
        };
        let _ = writeln!(text, "    {}: {kind},", param.name);
    }
    text.push_str("}\nvar<immediate> p: Params;\n");
}

/// Declares a buffer and its accessors. Half-width elements without the f16 feature, and bf16 always, live in 32-bit
/// words; a store then changes its half of the word atomically, since another thread may own the other half. Blocks are
/// words without accessors.
fn buffer(text: &mut String, index: usize, binding: &Binding, native_f16: bool) {
    let Binding { role, place: _, dtype, access } = binding;
    let mode = match access {
        Access::Read => "read",
        Access::SharedRead | Access::Write => "read_write",
    };
    let halves = *dtype == DType::BF16 || (*dtype == DType::F16 && !native_f16);
    let element = match (dtype, halves, access) {
        (_, true, Access::Write) => "atomic<u32>",
        (_, true, Access::Read | Access::SharedRead) => "u32",
        (DType::F32, false, _) => "f32",
        (DType::F16 | DType::BF16, false, _) => "f16",
        (DType::I32 | DType::I64, false, _) => "i32",
        (DType::Block(_), false, _) => "u32",
    };
    let _ = writeln!(text, "@group(0) @binding({index}) var<storage, {mode}> {role}_data: array<{element}>;");
    match access {
        Access::Read | Access::SharedRead => load(text, role, *dtype, halves),
        Access::Write => store(text, role, *dtype, halves),
    }
}

fn load(text: &mut String, role: &str, dtype: DType, halves: bool) {
    let at = format!("(p.{role}_offset + i)");
    let (result, expression) = match (dtype, halves) {
        (DType::F32, _) => ("f32", format!("{role}_data[{at}]")),
        (DType::F16, false) => ("f32", format!("f32({role}_data[{at}])")),
        (DType::F16, true) => ("f32", format!("unpack2x16float({role}_data[{at} / 2u])[{at} % 2u]")),
        // A bf16 is the upper half of an f32.
        (DType::BF16, _) => ("f32", format!("bitcast<f32>(({role}_data[{at} / 2u] >> (16u * ({at} % 2u))) << 16u)")),
        (DType::I32, _) => ("i32", format!("{role}_data[{at}]")),
        // Indices and positions fit the low word; little-endian, so it comes first.
        (DType::I64, _) => ("i32", format!("{role}_data[2u * {at}]")),
        (DType::Block(_), _) => return,
    };
    let _ = writeln!(text, "fn {role}_load(i: u32) -> {result} {{ return {expression}; }}");
    if dtype == DType::I64 {
        // For copies, which keep all bits.
        let _ = writeln!(text, "fn {role}_load_high(i: u32) -> i32 {{ return {role}_data[2u * {at} + 1u]; }}");
    }
}

fn store(text: &mut String, role: &str, dtype: DType, halves: bool) {
    let at = format!("(p.{role}_offset + i)");
    let (value, statement) = match (dtype, halves) {
        (DType::F32, _) => ("f32", format!("{role}_data[{at}] = v;")),
        (DType::F16, false) => ("f32", format!("{role}_data[{at}] = f16(v);")),
        (DType::F16, true) | (DType::BF16, _) => {
            let bits = if dtype == DType::F16 {
                "let bits = pack2x16float(vec2<f32>(v, 0.0));".to_owned()
            } else {
                // Round to nearest even; a NaN keeps its upper half and stays a NaN.
                concat!(
                    "let raw = bitcast<u32>(v); ",
                    "let nan = (raw & 0x7fffffffu) > 0x7f800000u; ",
                    "let bits = select((raw + 0x7fffu + ((raw >> 16u) & 1u)) >> 16u, (raw >> 16u) | 0x40u, nan);",
                )
                .to_owned()
            };
            let word = format!("{role}_data[{at} / 2u]");
            (
                "f32",
                format!(
                    "{bits} let shift = 16u * ({at} % 2u); atomicAnd(&{word}, ~(0xffffu << shift)); atomicOr(&{word}, bits << shift);"
                ),
            )
        }
        (DType::I32, _) => ("i32", format!("{role}_data[{at}] = v;")),
        (DType::I64, _) => ("i32", format!("{role}_store_words(i, v, v >> 31u);")),
        (DType::Block(_), _) => return,
    };
    let _ = writeln!(text, "fn {role}_store(i: u32, v: {value}) {{ {statement} }}");
    if dtype == DType::I64 {
        let _ = writeln!(
            text,
            "fn {role}_store_words(i: u32, low: i32, high: i32) {{ {role}_data[2u * {at}] = low; {role}_data[2u * {at} + 1u] = high; }}"
        );
    }
}
