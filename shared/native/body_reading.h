/* Reading: answers and row tags. Included by dpf_body.h, once per instruction set. */

/* ---- reading: XOR of the rows whose control bit is set ---- */

/* XOR the chosen rows into `answer`; the next rows are prefetched meanwhile. */
TARGET static void NAME(xor_rows)(const uint32_t *rows, size_t columns, const int32_t *chosen, size_t count,
                                  uint32_t *answer) {
    enum { WORDS = VECTOR / 4, WIDE = 4, AHEAD = 6 };
    size_t column = 0;
    for (; column + WORDS * WIDE <= columns; column += WORDS * WIDE) {
        V4 sum[WIDE];
        for (int v = 0; v < WIDE; v++) sum[v] = NAME(v_load)((const uint8_t *)(answer + column + WORDS * v));
        for (size_t i = 0; i < count; i++) {
            const uint32_t *row = rows + (size_t)chosen[i] * columns + column;
            const uint32_t *later = rows + (size_t)chosen[smaller(i + AHEAD, count - 1)] * columns + column;
            for (int v = 0; v < WIDE; v++) __builtin_prefetch(later + WORDS * v);
            for (int v = 0; v < WIDE; v++)
                sum[v] = NAME(v_xor)(sum[v], NAME(v_load)((const uint8_t *)(row + WORDS * v)));
        }
        for (int v = 0; v < WIDE; v++) NAME(v_store)((uint8_t *)(answer + column + WORDS * v), sum[v]);
    }
    for (; column + WORDS <= columns; column += WORDS) {
        V4 sum = NAME(v_load)((const uint8_t *)(answer + column));
        for (size_t i = 0; i < count; i++)
            sum = NAME(v_xor)(sum, NAME(v_load)((const uint8_t *)(rows + (size_t)chosen[i] * columns + column)));
        NAME(v_store)((uint8_t *)(answer + column), sum);
    }
    for (; column < columns; column++) {
        uint32_t sum = answer[column];
        for (size_t i = 0; i < count; i++) sum ^= rows[(size_t)chosen[i] * columns + column];
        answer[column] = sum;
    }
}

/* The items of one lane's leaves whose control bit is set, without a branch on the bit. */
TARGET static size_t NAME(chosen_items)(const V4 *nodes, size_t lane, const int32_t *order, size_t count,
                                        const table_t *table, int32_t *chosen) {
    const uint8_t *control = (const uint8_t *)nodes + lane * BLOCK;
    size_t n = 0;
    for (size_t leaf = 0; leaf < count; leaf++) {
        chosen[n] = order[leaf];
        n += (control[leaf * VECTOR] & 1) & ((uint32_t)order[leaf] < table->items);
    }
    return n;
}

/* The answers of four slots, from the nodes of a chunk: (lanes, columns). */
TARGET static void NAME(answer_group)(const V4 *nodes, const table_t *table, size_t slot, size_t lanes, size_t first,
                                      size_t count, const uint32_t *rows, size_t columns, uint32_t *answers) {
    int32_t chosen[CHUNK_LEAVES + 1];
    for (size_t lane = 0; lane < lanes; lane++) {
        const int32_t *order = table->order + (slot + lane) / table->slots_per_bin * table->leaves + first;
        const size_t n = NAME(chosen_items)(nodes, lane, order, count, table, chosen);
        if (n) NAME(xor_rows)(rows, columns, chosen, n, answers + lane * columns);
    }
}

TARGET static int NAME(answer)(const paths_t *p, const table_t *table, const part_t *part, const uint32_t *rows,
                               size_t columns, uint32_t *answers) {
    uint8_t *schedules = NAME(schedules_of)(p), *memory = take_lines(2 * NODE_BYTES + sizeof(NAME(tree)));
    const int bits = NAME(chunk_bits_for)(p->depth, VECTOR), failed = !schedules || !memory;
    const size_t chunk = (size_t)1 << bits;
    for (size_t slot = part->slot_from; !failed && slot < part->slot_to; slot += GROUP)
        for (size_t first = part->leaf_from; first < part->leaf_to; first += chunk)
            for (size_t session = 0; session < p->sessions; session++) {
                const size_t count = smaller(chunk, part->leaf_to - first);
                NAME(tree) *tree = (NAME(tree) *)(memory + 2 * NODE_BYTES);
                NAME(load_tree)(tree, p, SCHEDULES(schedules, session), session, slot);
                const V4 *nodes = NAME(expand_chunk)(tree, p->depth, bits, first, count, (V4 *)memory,
                                                     (V4 *)(memory + NODE_BYTES));
                NAME(answer_group)(nodes, table, slot, smaller(GROUP, part->slot_to - slot), first, count, rows, columns,
                                   answers + (session * p->slots + slot) * columns);
            }
    free(schedules), free(memory);
    return failed;
}

/* ---- row tags: a chain h = H_K(h ^ block) over the row, starting with the item's number ---- */

TARGET static void NAME(row_tags)(const uint8_t *bytes, const uint8_t *rows, const int64_t *items, size_t count,
                                  size_t width, uint32_t *tags) {
    const NAME(key) key = NAME(make_key)(bytes);
    const V4 high = NAME(v_bcast)(NAME(high_half));
    const size_t size = width * 4;
    for (size_t at = 0; at < count; at += IN_FLIGHT * GROUP) {
        V4 h[IN_FLIGHT], s[IN_FLIGHT];
        uint64_t start[IN_FLIGHT * GROUP * 2] = {0};
        for (size_t i = 0; i < IN_FLIGHT * GROUP; i++) start[2 * i] = (uint64_t)items[smaller(at + i, count - 1)];
        for (size_t j = 0; j < IN_FLIGHT; j++) h[j] = NAME(v_load)((const uint8_t *)start + VECTOR * j);
        for (size_t offset = 0; offset < size; offset += BLOCK) {
            uint8_t blocks[IN_FLIGHT * VECTOR] = {0};
            for (size_t i = 0; i < IN_FLIGHT * GROUP; i++)
                memcpy(blocks + BLOCK * i, rows + smaller(at + i, count - 1) * size + offset, smaller(BLOCK, size - offset));
            for (size_t j = 0; j < IN_FLIGHT; j++) {
                s[j] = NAME(v_sigma)(NAME(v_xor)(h[j], NAME(v_load)(blocks + VECTOR * j)), high);
                h[j] = NAME(v_xor)(s[j], key.k[0]);
            }
            AES_MIDDLE(h, IN_FLIGHT, &key);
            for (size_t j = 0; j < IN_FLIGHT; j++)
                h[j] = NAME(v_aeslast)(h[j], NAME(v_xor)(s[j], key.k[ROUNDS]));
        }
        for (size_t j = 0; j < IN_FLIGHT; j++) NAME(v_store)((uint8_t *)start + VECTOR * j, h[j]);
        for (size_t i = 0; i < smaller(IN_FLIGHT * GROUP, count - at); i++) tags[at + i] = (uint32_t)start[2 * i];
    }
}
