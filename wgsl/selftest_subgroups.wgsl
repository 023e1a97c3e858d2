// What subgroup operations say, one row of results each: every answer can be predicted from `size` alone.
@compute @workgroup_size({{ wg }})
fn main(
    @builtin(local_invocation_index) local: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_size) size: u32,
) {
    let x = src_load(local);
    dst_store(local, bitcast<i32>(size));
    dst_store({{ wg }}u + local, bitcast<i32>(lane));
    dst_store(2u * {{ wg }}u + local, subgroupAdd(x));
    dst_store(3u * {{ wg }}u + local, subgroupMax(x));
    dst_store(4u * {{ wg }}u + local, subgroupShuffleXor(x, 1u));
    dst_store(5u * {{ wg }}u + local, subgroupBroadcastFirst(x));
}
