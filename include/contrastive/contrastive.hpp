// The whole library: contrastive losses on Eigen matrices, with hand-derived gradients.
#ifndef CONTRASTIVE_CONTRASTIVE_HPP
#define CONTRASTIVE_CONTRASTIVE_HPP

#include "alignment_uniformity.hpp"
#include "batch_report.hpp"
#include "clip.hpp"
#include "grad_cache.hpp"
#include "gradient_check.hpp"
#include "hard_negatives.hpp"
#include "info_nce.hpp"
#include "labels.hpp"
#include "memory_queue.hpp"
#include "mutual_information.hpp"
#include "nt_xent.hpp"
#include "options.hpp"
#include "pair_classification.hpp"
#include "results.hpp"
#include "retrieval.hpp"
#include "siglip.hpp"
#include "sup_con.hpp"
#include "temperature.hpp"
#include "triplet.hpp"
#include "version.hpp"
#include "workspace.hpp"

#endif  // CONTRASTIVE_CONTRASTIVE_HPP
