{#- OPT_STEP_ADAMW and OPT_STEP_SGD: one thread per weight.

    Switches: adamw (with moments m and v), dense (everything is). -#}
{% from "index" import unravel, strided %}
{%- if not dense %}
{{ unravel() }}{{ strided("w") }}{{ strided("grad") }}
{%- if adamw %}{{ strided("m") }}{{ strided("v") }}{% endif %}
{%- endif %}

@compute @workgroup_size({{ wg }})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let i = thread_index(group, groups, local);
    if i >= p.count {
        return;
    }
{%- if not dense %}
    let c = unravel(i, vec3<u32>(p.w_ne0, p.w_ne1, p.w_ne2));
{%- endif %}
{%- for role in (["w", "grad", "m", "v"] if adamw else ["w", "grad"]) %}
    let {{ role }}_i = {% if dense %}i{% else %}{{ role }}_at(c){% endif %};
{%- endfor %}
    let alpha = parameters_load(0u);
    let slope = grad_load(grad_i);
    let w = w_data[p.w_offset + w_i];
{%- if adamw %}
    let beta1 = parameters_load(1u);
    let beta2 = parameters_load(2u);
    let keep = 1.0 - alpha * parameters_load(4u);
    let m = m_data[p.m_offset + m_i] * beta1 + slope * (1.0 - beta1);
    let v = v_data[p.v_offset + v_i] * beta2 + slope * slope * (1.0 - beta2);
    m_store(m_i, m);
    v_store(v_i, v);
    let step = m * parameters_load(5u) / (sqrt(v * parameters_load(6u)) + parameters_load(3u));
{%- else %}
    let keep = 1.0 - alpha * parameters_load(1u);
    let step = slope;
{%- endif %}
    w_store(w_i, w * keep - alpha * step);
}
