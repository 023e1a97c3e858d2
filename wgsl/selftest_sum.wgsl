// One workgroup adds up as many numbers as it has threads, through workgroup memory and barriers.
var<workgroup> partial: array<f32, {{ wg }}>;

@compute @workgroup_size({{ wg }})
fn main(@builtin(local_invocation_index) local: u32) {
    partial[local] = src_load(local) * p.factor;
    workgroupBarrier();
    for (var half = {{ wg }}u / 2u; half > 0u; half /= 2u) {
        if local < half {
            partial[local] += partial[local + half];
        }
        workgroupBarrier();
    }
    if local == 0u {
        dst_store(0u, partial[0]);
    }
}
