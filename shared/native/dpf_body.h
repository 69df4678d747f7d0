/* The whole kernel, written once in terms of four AES blocks side by side (V4) and included per instruction set.
 *
 * A node of the tree is one block: the seed, with the control bit t in its lowest bit. The four lanes of a V4 are
 * the same node of four adjacent slots, so that children need no shuffling and the correction word of a level
 * is one load. Trees are cut into chunks of at most CHUNK_LEAVES leaves that stay in the nearest cache.
 */

typedef struct { V4 k[ROUNDS + 1]; } NAME(key);

/* One session's data for one group of four slots. */
typedef struct {
    NAME(key) left_key, right_key;
    V4 roots, left[MAX_DEPTH + 1], right[MAX_DEPTH + 1];
} NAME(tree);

static const uint8_t NAME(high_half)[BLOCK] = {0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255};
static const uint8_t NAME(seed_bits)[BLOCK] = {254, 255, 255, 255, 255, 255, 255, 255,
                                               255, 255, 255, 255, 255, 255, 255, 255};
static const uint8_t NAME(lowest_bit)[BLOCK] = {1};

#include "body_aes.h"
#include "body_paths.h"
#include "body_reading.h"
#include "body_writing.h"
#include "body_norm.h"
#include "body_check.h"

static const kernel_t NAME(kernel) = {
    .name = KERNEL_NAME,
    .available = KERNEL_AVAILABLE,
    .hash_blocks = NAME(hash_blocks),
    .add_stream = NAME(add_stream),
    .generate = NAME(generate),
    .expand = NAME(expand),
    .convert_gen = NAME(convert_gen),
    .answer = NAME(answer),
    .accumulate = NAME(accumulate),
    .row_tags = NAME(row_tags),
    .project = NAME(project),
    .leaf_hashes = NAME(leaf_hashes),
    .answer_checked = NAME(answer_checked),
};

#undef AES_MIDDLE
#undef GEN_GROUPS
#undef PARENTS
#undef PAIRS
#undef SCHEDULES
#undef NODE_BYTES
#undef PROJECT_BATCH
#undef SCHEDULE
#undef CHECK_LEAVES
