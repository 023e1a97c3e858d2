// Replaces some bits of one word, for writes that do not start or end at a word.
@compute @workgroup_size({{ wg }})
fn main() {
    let old = bitcast<u32>(word_data[p.index]);
    word_data[p.index] = bitcast<i32>((old & ~p.mask) | p.bits);
}
