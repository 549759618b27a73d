"""A folder that the original stage-1 scripts wrote, translated once into a campaign of ours, so that every tool reads it.

    sources → manifests, launcher_log, train_log → pairing → runs → run_specs, spans, endings, samples, merged_log → write → translate

Nothing of the original folder is changed: what is made of it lies in FOLDER/seatrial, and `translation.json` there says from what. The
readers, up to `runs` and `spans`, need the standard library only: the small checks of the runbooks read such folders by them too.
"""
