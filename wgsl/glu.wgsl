{#- A gated unit: a thread per element.

    Switches: op (the activation), halves (of one source's rows), unit: "plain", or with gate and value held to a limit,
    "clamp", or "oai", which adds 1 to the value. -#}
{% from "index" import unravel %}
{% from "activation" import function %}
{{ function(op) }}
{{ unravel() }}

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
    let c = unravel(i, vec3<u32>(p.dst_ne0, p.dst_ne1, p.dst_ne2));
    let a = c.x + c.y * p.a_nb1 + c.z * p.a_nb2 + c.w * p.a_nb3;
    {% if halves %}
    let gate = a_load(a + p.act_at);
    let value = a_load(a + p.gate_at);
    {% else %}
    let gate = a_load(a);
    let value = b_load(c.x + c.y * p.b_nb1 + c.z * p.b_nb2 + c.w * p.b_nb3);
    {% endif %}
    {% if unit == "plain" %}
    dst_store(i, act(gate) * value);
    {% else %}
    let held = clamp(value, -p.limit, p.limit);
    dst_store(i, act(min(gate, p.limit)) * {% if unit == "clamp" %}held{% else %}(held + 1.0){% endif %});
    {% endif %}
}
