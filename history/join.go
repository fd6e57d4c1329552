package history

import "fmt"

// ended releases the runs that have waited for a run, which has ended.
func (tx *Tx) ended(row *RunRow) error {
	waiting := tx.ids(prefix(byAfter, row.ID))
	if job, _ := JobOf(row); job.Group != "" && !tx.any(prefix(byGroupOpen, job.Group)) {
		waiting = append(waiting, tx.ids(prefix(byGroupWaits, job.Group))...)
	}
	for _, id := range waiting {
		var w RunRow
		if err := tx.must(&w, id); err != nil {
			return err
		}
		if w.Status == Waiting {
			if err := tx.answer(&w, &Answer{Result: HasEnded, Status: row.Status}); err != nil {
				return err
			}
			continue
		}
		if err := tx.join(&w); err != nil {
			return err
		}
	}
	return nil
}

// join queues a run for which all others that it waits for have ended, or cancels it.
func (tx *Tx) join(row *RunRow) error {
	job, _ := JobOf(row)
	if !job.joins() || row.Ended() {
		return nil
	}
	if job.AfterGroup != "" && tx.any(prefix(byGroupOpen, job.AfterGroup)) {
		return nil
	}
	failed := job.AfterGroup != "" && tx.any(prefix(byGroupFailed, job.AfterGroup))
	for _, id := range job.After {
		var dep RunRow
		there, err := tx.Get(&dep, id)
		switch {
		case err != nil:
			return err
		case there && !dep.Ended():
			return nil
		}
		failed = failed || there && dep.Status != Completed
	}
	job.Joined = true
	if failed && job.CancelIfFailed {
		row.Status, row.EndedAt = Cancelled, tx.now
		row.ErrorCode, row.ErrorMessage = "join_failed", "a run that it waited for has not completed"
	}
	if err := SetJob(row, job); err != nil {
		return err
	}
	return tx.Put(row)
}

// cycle returns ErrInvalid if a run of this group that comes after these would wait for
// itself.
func (tx *Tx) cycle(id string, job *Job) error {
	if job.Group == "" {
		return nil // nothing that is stored can wait for it
	}
	seen := map[string]bool{}
	var visit func(j *Job) error
	visit = func(j *Job) error {
		if j.AfterGroup == job.Group {
			return invalidf("the run %q would wait for its group %q", id, job.Group)
		}
		ids := j.After
		if g := j.AfterGroup; g != "" && !seen["g"+g] {
			seen["g"+g] = true
			ids = append(ids[:len(ids):len(ids)], tx.ids(prefix(byGroupOpen, g))...)
		}
		for _, dep := range ids {
			if seen["r"+dep] {
				continue
			}
			seen["r"+dep] = true
			var row RunRow
			if err := tx.must(&row, dep); err != nil {
				return err
			}
			of, _ := JobOf(&row)
			if of.joins() && !row.Ended() {
				if err := visit(&of); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return visit(job)
}

// joinNew checks what a new run waits for, and joins it where all of that has ended.
func (tx *Tx) joinNew(row *RunRow, job *Job) error {
	for _, id := range job.After {
		if _, ok := tx.versionOf(rowKey(RunEntity, id)); !ok {
			return notFound(RunEntity, id)
		}
	}
	if g := job.AfterGroup; g != "" && !tx.any(prefix(byGroupOpen, g)) && !tx.any(prefix(byGroupDone, g)) && !tx.any(prefix(byGroupFailed, g)) {
		return fmt.Errorf("%w: no run is in the group %q", ErrNotFound, g)
	}
	if !job.joins() {
		return nil
	}
	if err := tx.cycle(row.ID, job); err != nil {
		return err
	}
	return tx.join(row)
}
