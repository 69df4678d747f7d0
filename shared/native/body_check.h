/* Verifiable keys: hashes of leaves, and fingerprints over all of them. Included by dpf_body.h, once per instruction set.
 *
 * The hash of node n at leaf x is three blocks H_K(n) with keys K = AES(leaf key, 3x + j) that no other leaf has.
 * The node comes with its control bit. A leaf's key schedules serve all slots, so they are computed once per chunk.
 */

#define SCHEDULE ((ROUNDS + 1) * BLOCK)

/* The key schedules of the leaves starting with `first`: (count, 3, 11, 16). */
TARGET static void NAME(leaf_schedules)(const NAME(key) *leaf_key, size_t first, size_t count, uint8_t *schedules) {
    uint8_t keys[IN_FLIGHT * VECTOR];
    for (size_t at = 0; at < count * HASHES; at += IN_FLIGHT * GROUP) {
        V4 x[IN_FLIGHT];
        NAME(stream_vectors)(leaf_key, HASHES * first + at, x);
        for (int j = 0; j < IN_FLIGHT; j++) NAME(v_store)(keys + VECTOR * j, x[j]);
        for (size_t i = 0; i < smaller(IN_FLIGHT * GROUP, count * HASHES - at); i++)
            NAME(schedule)(keys + BLOCK * i, schedules + (at + i) * SCHEDULE);
    }
}

/* ---- a device: the hash of one node per slot ---- */

TARGET static void NAME(leaf_hashes)(const uint8_t *bytes, const uint8_t *nodes, const int64_t *leaves, size_t count,
                                     uint8_t *out) {
    const NAME(key) leaf_key = NAME(make_key)(bytes);
    for (size_t i = 0; i < count; i++) {
        uint8_t schedules[HASHES * SCHEDULE], four[VECTOR];
        NAME(leaf_schedules)(&leaf_key, (size_t)leaves[i], 1, schedules);
        const V4 s = NAME(v_sigma)(NAME(v_bcast)(nodes + i * BLOCK), NAME(v_bcast)(NAME(high_half)));
        V4 x[HASHES];
        for (int j = 0; j < HASHES; j++) x[j] = NAME(v_xor)(s, NAME(v_bcast)(schedules + j * SCHEDULE));
        for (int round = 1; round < ROUNDS; round++)
            for (int j = 0; j < HASHES; j++)
                x[j] = NAME(v_aes)(x[j], NAME(v_bcast)(schedules + j * SCHEDULE + round * BLOCK));
        for (int j = 0; j < HASHES; j++) {
            const V4 last = NAME(v_bcast)(schedules + j * SCHEDULE + ROUNDS * BLOCK);
            NAME(v_store)(four, NAME(v_aeslast)(x[j], NAME(v_xor)(s, last)));
            memcpy(out + i * HASH + j * BLOCK, four, BLOCK);
        }
    }
}

/* ---- a server: XOR over all leaves of AES(k_j, hash_j ^ t * correction_j ^ mask of slot ^ mask of leaf) ---- */

/* Four slots of one session. */
typedef struct {
    V4 corrections[HASHES], masks, present; /* present: all ones if there is a slot */
} NAME(checked_slots);

TARGET static NAME(checked_slots) NAME(load_checked)(const NAME(key) *mask_key, const uint8_t *corrections, size_t slot,
                                                     size_t available) {
    NAME(checked_slots) four;
    uint8_t blocks[HASHES][VECTOR] = {{0}}, present[VECTOR] = {0};
    uint64_t places[GROUP * 2];
    for (size_t lane = 0; lane < GROUP; lane++) places[2 * lane] = slot + lane, places[2 * lane + 1] = 1;
    for (size_t lane = 0; lane < smaller(GROUP, available); lane++) {
        memset(present + lane * BLOCK, 255, BLOCK);
        for (int j = 0; j < HASHES; j++)
            memcpy(blocks[j] + lane * BLOCK, corrections + lane * HASH + j * BLOCK, BLOCK);
    }
    for (int j = 0; j < HASHES; j++) four.corrections[j] = NAME(v_load)(blocks[j]);
    V4 masks = NAME(v_xor)(NAME(v_load)((const uint8_t *)places), mask_key->k[0]);
    for (int round = 1; round < ROUNDS; round++) masks = NAME(v_aes)(masks, mask_key->k[round]);
    four.masks = NAME(v_aeslast)(masks, mask_key->k[ROUNDS]), four.present = NAME(v_load)(present);
    return four;
}

#define CHECK_LEAVES (IN_FLIGHT >= 8 ? 2 : 1) /* at a time: more would not fit into the registers */

/* The contribution of n leaves of four slots to the fingerprint: their hashes side by side, then encrypted. */
LANE_FN V4 NAME(check_leaves)(const NAME(checked_slots) *slots, const NAME(key) *keys, const uint8_t *schedules,
                              const uint8_t *masks, const V4 *nodes, const int n) {
    V4 x[CHECK_LEAVES * HASHES], s[CHECK_LEAVES];
    for (int i = 0; i < n; i++) {
        s[i] = NAME(v_sigma)(nodes[i], NAME(v_bcast)(NAME(high_half)));
        for (int j = 0; j < HASHES; j++)
            x[HASHES * i + j] = NAME(v_xor)(s[i], NAME(v_bcast)(schedules + (HASHES * i + j) * SCHEDULE));
    }
    for (int round = 1; round < ROUNDS; round++)
        for (int j = 0; j < HASHES * n; j++)
            x[j] = NAME(v_aes)(x[j], NAME(v_bcast)(schedules + j * SCHEDULE + round * BLOCK));
    for (int i = 0; i < n; i++) {
        const V4 t = NAME(v_control)(nodes[i]), mask = NAME(v_xor)(slots->masks, NAME(v_bcast)(masks + i * BLOCK));
        for (int j = 0; j < HASHES; j++) {
            const V4 last = NAME(v_bcast)(schedules + (HASHES * i + j) * SCHEDULE + ROUNDS * BLOCK);
            const V4 hash = NAME(v_aeslast)(x[HASHES * i + j], NAME(v_xor)(s[i], last));
            const V4 hidden = NAME(v_xor)(NAME(v_and)(t, slots->corrections[j]), NAME(v_xor)(mask, keys[j].k[0]));
            x[HASHES * i + j] = NAME(v_xor)(hash, hidden);
        }
    }
    for (int round = 1; round < ROUNDS; round++)
        for (int j = 0; j < HASHES * n; j++) x[j] = NAME(v_aes)(x[j], keys[j % HASHES].k[round]);
    V4 sum = NAME(v_aeslast)(x[0], keys[0].k[ROUNDS]);
    for (int j = 1; j < HASHES * n; j++) sum = NAME(v_xor)(sum, NAME(v_aeslast)(x[j], keys[j % HASHES].k[ROUNDS]));
    return NAME(v_and)(sum, slots->present);
}

/* The masks of the leaves starting with `first`: the stream of the key. */
TARGET static void NAME(leaf_masks)(const NAME(key) *mask_key, size_t first, size_t count, uint8_t *masks) {
    for (size_t at = 0; at < count; at += IN_FLIGHT * GROUP) {
        V4 x[IN_FLIGHT];
        uint8_t some[IN_FLIGHT * VECTOR];
        NAME(stream_vectors)(mask_key, first + at, x);
        for (int j = 0; j < IN_FLIGHT; j++) NAME(v_store)(some + VECTOR * j, x[j]);
        memcpy(masks + at * BLOCK, some, smaller(IN_FLIGHT * GROUP, count - at) * BLOCK);
    }
}

/* The answers of the part's slots and, in the same pass, their fingerprints: XOR-ed into `out` (sessions, 16). */
TARGET static int NAME(answer_checked)(const paths_t *p, const table_t *table, const checks_t *checks, const part_t *part,
                                       const uint32_t *rows, size_t columns, uint32_t *answers, uint8_t *out) {
    uint8_t *schedules = NAME(schedules_of)(p);
    uint8_t *memory = take_lines(2 * NODE_BYTES + sizeof(NAME(tree)) + CHUNK_LEAVES * (HASHES * SCHEDULE + BLOCK));
    const int bits = NAME(chunk_bits_for)(p->depth, VECTOR), failed = !schedules || !memory;
    const size_t chunk = (size_t)1 << bits;
    NAME(key) keys[HASHES + 1];
    for (int j = 0; j <= HASHES; j++) keys[j] = NAME(make_key)(checks->keys + j * BLOCK);
    for (size_t session = 0; !failed && session < p->sessions; session++) {
        const NAME(key) leaf_key = NAME(make_key)(checks->leaf_keys + session * BLOCK);
        NAME(tree) *tree = (NAME(tree) *)(memory + 2 * NODE_BYTES);
        uint8_t *leaf_schedules = (uint8_t *)tree + sizeof(NAME(tree)), lanes[VECTOR];
        uint8_t *leaf_masks = leaf_schedules + CHUNK_LEAVES * HASHES * SCHEDULE;
        V4 sum = NAME(v_xor)(leaf_key.k[0], leaf_key.k[0]);
        for (size_t first = part->leaf_from; first < part->leaf_to; first += chunk) {
            const size_t count = smaller(chunk, part->leaf_to - first);
            NAME(leaf_schedules)(&leaf_key, first, count, leaf_schedules);
            NAME(leaf_masks)(&keys[HASHES], first, count, leaf_masks);
            for (size_t slot = part->slot_from; slot < part->slot_to; slot += GROUP) {
                const NAME(checked_slots) four = NAME(load_checked)(
                    &keys[HASHES], checks->corrections + (session * p->slots + slot) * HASH, checks->first_slot + slot,
                    part->slot_to - slot);
                NAME(load_tree)(tree, p, SCHEDULES(schedules, session), session, slot);
                const V4 *nodes = NAME(expand_chunk)(tree, p->depth, bits, first, count, (V4 *)memory,
                                                     (V4 *)(memory + NODE_BYTES));
                NAME(answer_group)(nodes, table, slot, smaller(GROUP, part->slot_to - slot), first, count, rows, columns,
                                   answers + (session * p->slots + slot) * columns);
                size_t leaf = 0;
                for (; leaf + CHECK_LEAVES <= count; leaf += CHECK_LEAVES)
                    sum = NAME(v_xor)(sum, NAME(check_leaves)(&four, keys, leaf_schedules + leaf * HASHES * SCHEDULE,
                                                              leaf_masks + leaf * BLOCK, nodes + leaf, CHECK_LEAVES));
                for (; leaf < count; leaf++)
                    sum = NAME(v_xor)(sum, NAME(check_leaves)(&four, keys, leaf_schedules + leaf * HASHES * SCHEDULE,
                                                              leaf_masks + leaf * BLOCK, nodes + leaf, 1));
            }
        }
        NAME(v_store)(lanes, sum);
        for (size_t i = 0; i < VECTOR; i++) out[session * BLOCK + i % BLOCK] ^= lanes[i];
    }
    free(schedules), free(memory);
    return failed;
}
