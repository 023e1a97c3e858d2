{#- TIMESTEP_EMBEDDING: a thread per element of the result. -#}
{% from "special" import reduced, exponentials %}
{{ reduced() }}
{{ exponentials() }}

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
    let row = i / p.dim;
    let column = i - row * p.dim;
    let half = p.dim / 2u;
    // An odd row has one element more than there are waves.
    if column >= 2u * half {
        dst_store(i, 0.0);
        return;
    }
    let j = column % half;
    let frequency = exponential(-p.log_period * f32(j) / f32(half));
    let angle = reduced(times_load(row * p.times_nb0) * frequency);
    dst_store(i, select(sin(angle), cos(angle), column < half));
}
