{#- SSM_CONV: causal convolution of each channel's row with the channel's kernel. One thread per result. -#}
@compute @workgroup_size({{ wg }})
fn main(
    @builtin(local_invocation_index) local: u32,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let index = thread_index(group, groups, local);
    if (index >= p.count) {
        return;
    }
    let channel = index % p.y_ne0;
    let token = index / p.y_ne0 % p.y_ne1;
    let sequence = index / (p.y_ne0 * p.y_ne1);
    let x = token + channel * p.x_nb1 + sequence * p.x_nb2;
    let c = channel * p.c_ne0;
    var sum = 0.0;
    for (var i = 0u; i < p.c_ne0; i++) {
        sum += x_load(x + i) * c_load(c + i);
    }
    y_store(index, sum);
}
