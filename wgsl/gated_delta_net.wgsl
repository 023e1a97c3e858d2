{#- GATED_DELTA_NET. One workgroup per head, sequence and block of state rows; `lanes` threads hold one row of the state in
    registers and walk the tokens.

    Switches: size (of a head), lanes, gate_per_channel, write_through (the snapshots go straight to the cache),
    shuffles (the lanes of a row exchange their sums within a subgroup, else through workgroup memory). -#}
{%- set quads = size // (4 * lanes) %}
{%- set rows = wg // lanes %}
{%- set blocks = (size + rows - 1) // rows %}
{%- set snapshots = "cache" if write_through else "y" %}
{%- macro quad(role, at) -%}
vec4({{ role }}_load({{ at }}), {{ role }}_load({{ at }} + 1u), {{ role }}_load({{ at }} + 2u), {{ role }}_load({{ at }} + 3u))
{%- endmacro -%}
{% if shuffles -%}
// Lanes of one row are neighbours in a subgroup, which has at least as many threads.
fn row_sum(own: vec3<f32>) -> vec3<f32> {
    var total = own;
    for (var step = 1u; step < {{ lanes }}u; step *= 2u) {
        total += subgroupShuffleXor(total, step);
    }
    return total;
}
{%- else -%}
// Used in turns, so that one barrier per token is enough.
var<workgroup> sums: array<array<vec3<f32>, {{ wg }}>, 2>;

fn row_sum(own: vec3<f32>, thread: u32, turn: u32) -> vec3<f32> {
    sums[turn][thread] = own;
    workgroupBarrier();
    let first = thread - thread % {{ lanes }}u;
    var total = sums[turn][first];
{%- for lane in range(1, lanes) %}
    total += sums[turn][first + {{ lane }}u];
{%- endfor %}
    return total;
}
{%- endif %}

@compute @workgroup_size({{ wg }})
fn main(
{%- if shuffles %}
    @builtin(subgroup_size) subgroup_size: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) subgroup_lane: u32,
{%- else %}
    @builtin(local_invocation_index) thread: u32,
{%- endif %}
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
{%- if shuffles %}
    let thread = subgroup * subgroup_size + subgroup_lane;
{%- endif %}
    let work = group_index(group, groups);
    let head = work / {{ blocks }}u % p.heads;
    let batch = work / ({{ blocks }}u * p.heads);
    if (batch >= p.batches) {
        return;
    }
    let row = work % {{ blocks }}u * {{ rows }}u + thread / {{ lanes }}u;
    // Rows past the end repeat the last one and are not stored.
    let exists = row < {{ size }}u;
    let from_row = min(row, {{ size - 1 }}u);
    let channel = thread % {{ lanes }}u * 4u;

    let state_row = ((batch * p.heads + head) * {{ size }}u + from_row) * {{ size }}u + channel;
{%- for i in range(quads) %}
    var state{{ i }} = {{ quad("state", "state_row + " ~ (4 * lanes * i) ~ "u") }};
{%- endfor %}
    let shared_head = head % p.key_heads;
    for (var token = 0u; token < p.tokens; token++) {
        let q = shared_head * p.q_nb1 + token * p.q_nb2 + batch * p.q_nb3 + channel;
        let k = shared_head * p.k_nb1 + token * p.k_nb2 + batch * p.k_nb3 + channel;
        let at = (batch * p.tokens + token) * p.heads + head;
{%- if not gate_per_channel %}
        let decay = exp(g_load(at));
{%- endif %}
        // The row's products with k and q before the update, and q · k, give its result after the update: one exchange.
        var own = vec3<f32>();
{%- for i in range(quads) %}
        let q{{ i }} = {{ quad("q", "q + " ~ (4 * lanes * i) ~ "u") }};
        let k{{ i }} = {{ quad("k", "k + " ~ (4 * lanes * i) ~ "u") }};
{%- if gate_per_channel %}
        let g{{ i }} = at * {{ size }}u + channel + {{ 4 * lanes * i }}u;
        state{{ i }} *= exp({{ quad("g", "g" ~ i) }});
{%- else %}
        state{{ i }} *= decay;
{%- endif %}
        own += vec3(dot(state{{ i }}, k{{ i }}), dot(state{{ i }}, q{{ i }}), dot(k{{ i }}, q{{ i }}));
{%- endfor %}
        let total = row_sum(own{% if not shuffles %}, thread, token % 2u{% endif %});
        let value = v_load(head * p.v_nb1 + token * p.v_nb2 + batch * p.v_nb3 + from_row);
        let delta = (value - total.x) * beta_load(at);
{%- for i in range(quads) %}
        state{{ i }} += k{{ i }} * delta;
{%- endfor %}
        if (exists && channel == 0u) {
            y_store(at * {{ size }}u + row, (total.y + delta * total.z) * p.scale);
        }
        let slot = p.tokens - 1u - token;
        if (exists && slot < p.snapshots) {
            let to = p.snapshots_start + slot * p.slot_stride + batch * p.batch_stride + (head * {{ size }}u + row) * {{ size }}u + channel;
{%- for i in range(quads) %}
{%- for component in range(4) %}
            {{ snapshots }}_store(to + {{ 4 * lanes * i + component }}u, state{{ i }}[{{ component }}]);
{%- endfor %}
{%- endfor %}
        }
    }
}
