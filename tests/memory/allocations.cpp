// Counts the allocations of a training loop: with a workspace and a result made earlier there is
// none from the second step on.
#include <contrastive/contrastive.hpp>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "support/random.hpp"

// Where glibc's own functions can be reached, malloc is counted: operator new and Eigen go there.
// Sanitizers replace malloc themselves; elsewhere only operator new is counted.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CONTRASTIVE_TESTS_COUNT_MALLOC 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) \
    || __has_feature(memory_sanitizer)
#define CONTRASTIVE_TESTS_COUNT_MALLOC 0
#endif
#endif
#ifndef CONTRASTIVE_TESTS_COUNT_MALLOC
#ifdef __GLIBC__
#define CONTRASTIVE_TESTS_COUNT_MALLOC 1
#else
#define CONTRASTIVE_TESTS_COUNT_MALLOC 0
#endif
#endif

namespace {
std::size_t allocations = 0;
}  // namespace

#if CONTRASTIVE_TESTS_COUNT_MALLOC

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* old, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);

void* malloc(std::size_t size) noexcept {
  ++allocations;
  return __libc_malloc(size);
}

void* calloc(std::size_t count, std::size_t size) noexcept {
  ++allocations;
  return __libc_calloc(count, size);
}

void* realloc(void* old, std::size_t size) noexcept {
  ++allocations;
  return __libc_realloc(old, size);
}

void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  ++allocations;
  return __libc_memalign(alignment, size);
}

int posix_memalign(void** result, std::size_t alignment, std::size_t size) noexcept {
  ++allocations;
  *result = __libc_memalign(alignment, size);
  return *result == nullptr ? 12 : 0;  // ENOMEM
}
}

#else

void* operator new(std::size_t size) {
  ++allocations;
  if (void* result = std::malloc(size)) return result;
  throw std::bad_alloc();
}

void operator delete(void* pointer) noexcept {
  std::free(pointer);
}
void operator delete(void* pointer, std::size_t) noexcept {
  std::free(pointer);
}

#endif

namespace {

using namespace contrastive;
using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

int failures = 0;

/// Runs the call a few times, and expects allocations in the first alone.
template <class Call>
void check(const char* name, const Call& call) {
  call();
  const std::size_t before = allocations;
  for (int step = 0; step < 3; ++step) call();
  const std::size_t made = allocations - before;
  std::printf("%-45s %zu\n", name, made);
  if (made != 0) ++failures;
}

/// The in-place forms and the values of every loss on a pair of plain matrices, maps or blocks.
template <class Q, class P, class N, class S>
void check_all(const Eigen::MatrixBase<Q>& q, const Eigen::MatrixBase<P>& p,
               const Eigen::MatrixBase<N>& n, const Eigen::MatrixBase<S>& s) {
  const Temperature tau{0.05};
  const LogScale scale{2.0};
  const std::vector<std::int64_t> ids = {1, 2, 3, 1, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 2};
  const std::vector<double> weights(16, 0.5);
  SoftmaxOptions options;
  options.pos_ids = ids;
  options.query_ids = ids;
  options.weights = weights;
  SoftmaxOptions targets = options;
  targets.label_smoothing = 0.1;
  targets.positive_margin = 0.1;
  targets.decoupled = true;
  targets.log_prior = weights;
  targets.false_negative_margin = 0.05;
  SoftmaxOptions unweighted = targets;
  unweighted.weights = {};
  SigLipOptions sigmoid;
  sigmoid.pos_ids = ids;
  sigmoid.weights = weights;
  Workspace workspace;
  RowLosses<Q> rows;
  float value = 0;
  {
    InfoNceGradient<Q, P, Temperature> result;
    check("info_nce_loss_grad", [&] { info_nce_loss_grad(q, p, tau, {}, result, workspace); });
    check("info_nce_loss_grad, options",
          [&] { info_nce_loss_grad(q, p, tau, options, result, workspace); });
    check("info_nce_loss_grad, targets",
          [&] { info_nce_loss_grad(q, p, tau, targets, result, workspace); });
    check("info_nce_rows", [&] { info_nce_rows(q, p, tau, unweighted, rows, workspace); });
    check("batch_report", [&] {
      value += static_cast<float>(batch_report(q, p, tau, targets, workspace).log_candidates);
    });
    check("info_nce_loss", [&] { value += info_nce_loss(q, p, tau, options, workspace); });
  }
  {
    ClipGradient<Q, P, LogScale> result;
    check("clip_loss_grad", [&] { clip_loss_grad(q, p, scale, {}, result, workspace); });
    check("clip_loss_grad, options",
          [&] { clip_loss_grad(q, p, scale, options, result, workspace); });
    check("clip_loss_grad, targets",
          [&] { clip_loss_grad(q, p, scale, targets, result, workspace); });
    check("clip_rows", [&] { clip_rows(q, p, scale, unweighted, rows, workspace); });
    check("clip_loss", [&] { value += clip_loss(q, p, scale, options, workspace); });
    Workspace nothing{0};
    check("clip_loss_grad, no budget", [&] { clip_loss_grad(q, p, scale, {}, result, nothing); });
  }
  {
    HardNegativeGradient<Q, P, N, LogScale> result;
    SoftmaxOptions negatives = options;
    negatives.neg_ids = ids;
    check("hard_negative_loss_grad",
          [&] { hard_negative_loss_grad(q, p, n, scale, negatives, result, workspace); });
    negatives.scope = NegativeScope::own;
    check("hard_negative_loss_grad, own scope",
          [&] { hard_negative_loss_grad(q, p, n, scale, negatives, result, workspace); });
    targets.neg_ids = unweighted.neg_ids = ids;
    targets.scope = unweighted.scope = NegativeScope::own;
    check("hard_negative_loss_grad, targets",
          [&] { hard_negative_loss_grad(q, p, n, scale, targets, result, workspace); });
    check("hard_negative_rows",
          [&] { hard_negative_rows(q, p, n, scale, unweighted, rows, workspace); });
    check("batch_report, hard negatives", [&] {
      value += static_cast<float>(batch_report(q, p, n, tau, targets, workspace).log_candidates);
    });
    check("hard_negative_loss",
          [&] { value += hard_negative_loss(q, p, n, scale, negatives, workspace); });
  }
  {
    SigLipGradient<Q, P, LogScale> result;
    check("siglip_loss_grad",
          [&] { siglip_loss_grad(q, p, scale, -10, sigmoid, result, workspace); });
    sigmoid.weights = {};
    check("siglip_rows", [&] { siglip_rows(q, p, scale, -10, sigmoid, rows, workspace); });
    check("siglip_loss", [&] { value += siglip_loss(q, p, scale, -10, sigmoid, workspace); });
  }
  {
    NtXentGradient<Q, P, LogScale> result;
    SoftmaxOptions views = options, all = targets;
    all.log_prior = {};
    all.neg_ids = {};
    all.scope = NegativeScope::shared;
    check("nt_xent_loss_grad", [&] { nt_xent_loss_grad(q, p, scale, {}, result, workspace); });
    check("nt_xent_loss_grad, options",
          [&] { nt_xent_loss_grad(q, p, scale, views, result, workspace); });
    check("nt_xent_loss_grad, targets",
          [&] { nt_xent_loss_grad(q, p, scale, all, result, workspace); });
    check("nt_xent_loss", [&] { value += nt_xent_loss(q, p, scale, views, workspace); });
    all.weights = {};
    check("nt_xent_rows", [&] { nt_xent_rows(q, p, scale, all, rows, workspace); });
    Workspace nothing{0};
    check("nt_xent_loss_grad, no budget",
          [&] { nt_xent_loss_grad(q, p, scale, {}, result, nothing); });
  }
  {
    SupConGradient<Q, LogScale> result;
    SoftmaxOptions weighted;
    weighted.weights = weights;
    const Eigen::VectorXi labels = Eigen::VectorXi::LinSpaced(16, 0, 15) / 3;
    check("sup_con_loss_grad",
          [&] { sup_con_loss_grad(q, labels, scale, weighted, result, workspace); });
    check("sup_con_loss_grad, low temperature",
          [&] { sup_con_loss_grad(q, ids, LogScale{4.5}, {}, result, workspace); });
    check("sup_con_loss", [&] { value += sup_con_loss(q, labels, scale, weighted, workspace); });
    check("sup_con_rows", [&] { sup_con_rows(q, labels, scale, {}, rows, workspace); });
    Workspace nothing{0};
    check("sup_con_loss_grad, no budget",
          [&] { sup_con_loss_grad(q, labels, scale, {}, result, nothing); });
  }
  {
    LogitsGradient<S> result;
    check("info_nce_logits_loss_grad", [&] { info_nce_logits_loss_grad(s, result, workspace); });
    check("clip_logits_loss_grad", [&] { clip_logits_loss_grad(s, options, result, workspace); });
    SigLipLogitsGradient<S> sigmoid_result;
    check("siglip_logits_loss_grad",
          [&] { siglip_logits_loss_grad(s, 1, sigmoid, sigmoid_result, workspace); });
    MutualInformationGradient<S> nats;
    check("mutual_information_bound_grad",
          [&] { mutual_information_bound_grad(s, nats, workspace); });
    check("mutual_information_bound", [&] { value += mutual_information_bound(s, workspace); });
  }
  {
    TripletGradient<Q, P, N> result;
    check("triplet_loss_grad", [&] { triplet_loss_grad(q, p, n, 1, result, workspace); });
    check("triplet_loss", [&] { value += triplet_loss(q, p, n, 1, workspace); });
  }
  {
    // The columns of q meet those of p; the classifier has as many classes as there are columns.
    const Eigen::MatrixXf w = Eigen::MatrixXf::Random(9, 27);
    const Eigen::RowVectorXf b = Eigen::RowVectorXf::Random(9);
    const std::vector<int> labels = {0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 2, 3, 4, 5, 6};
    PairClassificationGradient<Q, P, Eigen::MatrixXf, Eigen::RowVectorXf> result;
    check("pair_classification_loss_grad",
          [&] { pair_classification_loss_grad(q, p, labels, w, b, result, workspace); });
    check("pair_classification_loss",
          [&] { value += pair_classification_loss(q, p, labels, w, b, workspace); });
  }
  {
    MemoryQueue<float> queue(40, q.cols());
    HardNegativeGradient<Q, P, RowMajor, Temperature> result;
    SoftmaxOptions negatives = options;
    queue.push(q, ids);
    queue.push(p, ids);
    queue.push(n, ids);
    check("MemoryQueue", [&] {
      queue.push(n, ids);
      negatives.neg_ids = queue.ids();
      hard_negative_loss_grad(q, p, queue.rows(), tau, negatives, result, workspace);
    });
    Eigen::MatrixXf slow = q;
    check("momentum_update", [&] { momentum_update(slow, p, 0.99); });
  }
  {
    AlignmentGradient<Q, P> result;
    check("alignment_loss_grad",
          [&] { alignment_loss_grad(q, p, 2, Similarity::cosine, result, workspace); });
    check("alignment_loss",
          [&] { value += alignment_loss(q, p, 2, Similarity::cosine, workspace); });
  }
  {
    UniformityGradient<Q> result;
    check("uniformity_loss_grad",
          [&] { uniformity_loss_grad(q, 2, Similarity::cosine, result, workspace); });
    check("uniformity_loss_grad, far apart",
          [&] { uniformity_loss_grad(q, 500, Similarity::dot, result, workspace); });
    check("uniformity_loss",
          [&] { value += uniformity_loss(q, 2, Similarity::cosine, workspace); });
  }
  {
    TopK<float> result;
    check("top_k", [&] { top_k(q, p, 3, Similarity::cosine, result, workspace); });
    check("recall_at_k", [&] {
      value += float(recall_at_k(q, p, 3, Similarity::dot, workspace));
      value += float(recall_at_k(q, p, ids, ids, 3, Similarity::cosine, workspace));
    });
    check("mean_reciprocal_rank", [&] {
      value += float(mean_reciprocal_rank(q, p, Similarity::dot, workspace));
      value += float(mean_reciprocal_rank(q, p, ids, ids, Similarity::cosine, workspace));
    });
  }
  if (!(value > 0)) ++failures;
}

/// A corpus of several sections and more than a few best, and another shape in between.
void check_retrieval(contrastive_tests::Random& random) {
  const Eigen::MatrixXf q = random.normal_matrix(3, 4000).cast<float>();
  const Eigen::MatrixXf corpus = random.normal_matrix(2500, 4000).cast<float>();
  Workspace workspace;
  TopK<float> many, one;
  check("top_k of a large corpus", [&] {
    top_k(q, corpus, 200, Similarity::dot, many, workspace);
    top_k(q, corpus.topRows(5), 1, Similarity::cosine, one, workspace);
  });
}

/// A smaller batch after a larger one, and other losses in between, allocate nothing either.
void check_shrinking(const Eigen::MatrixXf& q, const Eigen::MatrixXf& p) {
  Workspace workspace;
  ClipGradient<Eigen::MatrixXf, Eigen::MatrixXf, Temperature> clip;
  check("shapes and losses that change", [&] {
    for (const Eigen::Index rows : {16, 5, 11}) {
      float value = info_nce_loss(q.topRows(rows), p.topRows(rows), Temperature{}, {}, workspace);
      value += siglip_loss(q.topRows(rows), p.topRows(rows), Temperature{}, 0, {}, workspace);
      if (std::isnan(value)) ++failures;
    }
    clip_loss_grad(q, p, Temperature{}, {}, clip, workspace);
  });
}

/// A queue allocates at construction alone: not even its first push does.
void check_queue(const Eigen::MatrixXf& rows) {
  const std::vector<std::int64_t> ids(16, 7);
  MemoryQueue<float> queue(10, rows.cols()), without(10, rows.cols());
  const std::size_t before = allocations;
  queue.push(rows, ids);  // more than its capacity
  queue.push(rows.topRows(0));
  without.push(rows.topRows(3));
  queue.clear();
  const std::size_t made = allocations - before;
  std::printf("%-45s %zu\n", "a queue's first push", made);
  if (made != 0) ++failures;
}

}  // namespace

int main() {
  contrastive_tests::Random random(91);
  const Eigen::MatrixXf q = random.normal_matrix(16, 9).cast<float>();
  const Eigen::MatrixXf p = random.normal_matrix(16, 9).cast<float>();
  const RowMajor n = random.normal_matrix(16, 9).cast<float>();
  const Eigen::MatrixXf s = random.normal_matrix(16, 16).cast<float>();

  const std::size_t before = allocations;
  const Eigen::MatrixXf counted = q;
  if (allocations == before && CONTRASTIVE_TESTS_COUNT_MALLOC != 0) {
    std::puts("the counter does not count");
    return 1;
  }

  std::puts("allocations in steps 2 to 4, plain matrices");
  check_all(counted, p, n, s);
  std::puts("\nblocks");
  Eigen::MatrixXf large = Eigen::MatrixXf::Zero(40, 20);
  large.topLeftCorner(16, 9) = q;
  check_all(large.topLeftCorner(16, 9), p.block(0, 0, 16, 9), n.topRows(16), s.leftCols(16));
  std::puts("\nmaps, with strides");
  using Stride = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;
  const Eigen::MatrixXf spread = random.normal_matrix(40, 20).cast<float>();
  const Eigen::Map<const Eigen::MatrixXf> map(p.data(), 16, 9);
  const Eigen::Map<const Eigen::MatrixXf, 0, Stride> strided(spread.data(), 16, 9, Stride(80, 2));
  const Eigen::Map<const RowMajor, 0, Eigen::OuterStride<>> rows(spread.data(), 16, 9,
                                                                 Eigen::OuterStride<>(20));
  check_all(map, strided, rows, Eigen::Map<const Eigen::MatrixXf>(s.data(), 16, 16));
  std::puts("");
  check_shrinking(q, p);
  check_queue(q);
  check_retrieval(random);

  if (failures != 0) std::printf("%d calls allocated\n", failures);
  return failures == 0 ? 0 : 1;
}
